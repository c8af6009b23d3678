// ---- boxes: the names of bulk.cuh over the machine
#define __grid_constant__
struct TensorMap { u64 words[16]; };
void mbarrier_open(u32 at, int arrivals = 1);
void mbarrier_close(u32 at);
void boxes_may_follow();
void mbarrier_expect(u32 at, int bytes);
void mbarrier_wait(u32 at, int parity);
void mbarrier_arrive_at(u32 at);
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
