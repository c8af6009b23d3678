// ---- boxes: the names of bulk.cuh over the machine
#define __grid_constant__
struct TensorMap { u64 words[16]; };
DEV void fetch_map(const TensorMap&) {}
void mbarrier_open(u32 at, int arrivals = 1);
void mbarrier_close(u32 at);
void boxes_may_follow();
void tensor_cores_may_read();
void mbarrier_expect(u32 at, int bytes);
void mbarrier_wait(u32 at, int parity);
void mbarrier_arrive_at(u32 at);
void mbarrier_arrive(u32 at);
void mbarrier_tell(u32 at, u32 place, int x);
int mbarrier_number(u32 at, int parity, u32 place);
DEV int mbarrier_told(u32 at, int parity, u32 place, u32 all_read) {
  if (thread_index() % 32 == 0) {
    exchange()[0] = (u32)mbarrier_number(at, parity, place);
    mbarrier_arrive(all_read);
  }
  return (int)exchange_of(meet(), 0)[0];
}
int take(int* counter);
template <int N> DEV void registers_take() {}
template <int N> DEV void registers_leave() {}
void mbarrier_wait_for_all(u32 at, int parity);
void copy_box_at(u32 to, const u64* map, u32 at, int mask, const int* coordinates, int rank);
template <class... C> DEV void copy_box(u32 to, const TensorMap& map, u32 at, C... coordinates) {
  const int all[] = {coordinates...};
  copy_box_at(to, map.words, at, 0, all, (int)sizeof...(C));
}
template <class... C> DEV void copy_box_to_all(u32 to, const TensorMap& map, u32 at, int mask, C... coordinates) {
  const int all[] = {coordinates...};
  copy_box_at(to, map.words, at, mask, all, (int)sizeof...(C));
}

// ---- warpgroups: the names of warpgroup.cuh. A thread computes what it holds of the result.
void warpgroup_begin();
void warpgroup_commit();
void warpgroup_wait_for(int left);
void turn_wait_of(int team, int threads);
void turn_pass_of(int team, int threads);
template <int LEFT> DEV void warpgroup_wait() { warpgroup_wait_for(LEFT); }
template <int THREADS> DEV void turn_wait(int team) { turn_wait_of(team, THREADS); }
template <int THREADS> DEV void turn_pass(int team) { turn_pass_of(team, THREADS); }
DEV bool warp_any(bool x) {
  exchange()[0] = x;
  const int half = meet();
  for (int lane = 0; lane < 32; lane++) if (exchange_of(half, lane)[0]) return true;
  return false;
}
float tile_element(u64 descriptor, bool transposed, int row, int k, bool is_bf16);
template <int N> DEV void registers_settle(float (&)[N][4]) {}
template <class T> struct IsBf16 { static const bool value = false; };
template <> struct IsBf16<bf16> { static const bool value = true; };
template <class T, int WIDTH, bool TRANSPOSED> DEV void warpgroup_multiply(float (&d)[WIDTH / 8][4], const u32 (&a)[4], u64 b, bool keep) {
  memcpy(exchange(), a, 16);
  const int half = meet(), g = thread_index() % 32 / 4, t = thread_index() % 4;
  for (int n = 0; n < WIDTH / 8; n++)
    for (int e = 0; e < 4; e++) {
      float sum = keep ? d[n][e] : 0.f;
      for (int k = 0; k < 16; k++)
        sum += part<T>(exchange_of(half, g * 4 + (k % 8) / 2)[(e >> 1) + 2 * (k >= 8)], k & 1) *
               tile_element(b, TRANSPOSED, n * 8 + t * 2 + (e & 1), k, IsBf16<T>::value);
      d[n][e] = sum;
    }
}
template <class T, int WIDTH, bool TRANSPOSED> DEV void warpgroup_multiply_tiles(float (&d)[WIDTH / 8][4], u64 a, u64 b, bool keep) {
  const int g = thread_index() % 128 / 32 * 16 + thread_index() % 32 / 4, t = thread_index() % 4;
  for (int n = 0; n < WIDTH / 8; n++)
    for (int e = 0; e < 4; e++) {
      float sum = keep ? d[n][e] : 0.f;
      for (int k = 0; k < 16; k++)
        sum += tile_element(a, false, g + 8 * (e >> 1), k, IsBf16<T>::value) * tile_element(b, TRANSPOSED, n * 8 + t * 2 + (e & 1), k, IsBf16<T>::value);
      d[n][e] = sum;
    }
}
