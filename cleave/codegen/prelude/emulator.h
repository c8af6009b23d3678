// The GPU of emitted text, on the CPU: the names of device.cuh over the machine of machine.cpp. Out of bounds, misaligned and
// unordered accesses end the run with a message.
#include <cmath>
#include <cstdint>
#include <cstring>
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint64_t u64;
typedef long long i64;
#define DEV static inline
#define __global__
#define __launch_bounds__(threads, blocks)
#define __cluster_dims__(x, y, z)
#define __restrict__
#define __shared__ static
#define SHARED_MEMORY(name) unsigned char* name = shared_bytes()
#define NEG_INF (-INFINITY)
#define POS_INF INFINITY
#define NOT_A_NUMBER NAN
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct Dim3 { int x; };

// ---- the machine
extern Dim3 blockIdx, gridDim;
int thread_index();
#define threadIdx Dim3{thread_index()}
void block_barrier();
void team_barrier_of(int team, int threads);
void warp_barrier();
int meet();                           // all lanes of the warp arrive; which half of the exchange they wrote
u32* exchange();                      // where this lane writes before it meets the others
u32* exchange_of(int half, int lane);  // what a lane wrote
unsigned char* shared_bytes();
void note_read(u32 at, int bytes);
void note_write(u32 at, int bytes);
void check_global(const void* p, int bytes, bool writes);
void check_cached(const void* p, int bytes);  // a read that may meet a stale line
void check_aligned(const void* p, int bytes);
void copy_chunk(u32 to, const void* from, int bytes);
DEV void copy_chunk_if(u32 to, const void* from, bool present) { copy_chunk(to, from, present ? 16 : 0); }
DEV int of_warp(int x) { return x; }
DEV u32 apart(u32 x) { return x; }
DEV u64 apart(u64 x) { return x; }
template <class T> DEV const T* apart(const T* p) { return p; }
void copies_commit();
void copies_wait_for(int open);
const float* half_table();
template <int THREADS> DEV void team_barrier(int team) { team_barrier_of(team, THREADS); }
DEV u32 multiply_high(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
DEV u32 shared_address(const void* p) { return (u32)((const unsigned char*)p - shared_bytes()); }
template <int N> DEV void copies_wait() { static_assert(N >= 0, "at least zero groups stay open"); copies_wait_for(N); }

// ---- conversions
static const float* const halves = half_table();
DEV float to_float(float x) { return x; }
DEV float to_float(f16 x) { return halves[x.bits]; }
DEV float to_float(bf16 x) { u32 v = (u32)x.bits << 16; float r; memcpy(&r, &v, 4); return r; }
template <class T> struct Convert;
template <> struct Convert<float> { static float of(float x) { return x; } };
template <> struct Convert<f16> {
  static f16 of(float x) { _Float16 h = (_Float16)x; f16 r; memcpy(&r.bits, &h, 2); return r; }
  static u32 two(float low, float high) { return of(low).bits | ((u32)of(high).bits << 16); }
};
template <> struct Convert<bf16> {
  static bf16 of(float x) {
    u32 v; memcpy(&v, &x, 4);
    if (x != x) return bf16{0x7fff};
    v += 0x7fff + ((v >> 16) & 1);
    return bf16{(u16)(v >> 16)};
  }
  static u32 two(float low, float high) { return of(low).bits | ((u32)of(high).bits << 16); }
};

// ---- arithmetic
DEV float exp2_of(float x) { return exp2f(x); }
DEV float log2_of(float x) { return log2f(x); }
DEV float recip_of(float x) { return 1.f / x; }
DEV float sqrt_of(float x) { return sqrtf(x); }
DEV float rsqrt_of(float x) { return 1.f / sqrtf(x); }
DEV int less(int a, int b) { const i64 y = (i64)a - b; return y > 2147483647 ? 2147483647 : y < -2147483647 - 1 ? -2147483647 - 1 : (int)y; }
DEV float maximum(float a, float b) { return a != a || b != b ? NAN : fmaxf(a, b); }
DEV float minimum(float a, float b) { return a != a || b != b ? NAN : fminf(a, b); }
DEV float shuffle_xor(float x, int mask) {
  memcpy(exchange(), &x, 4);
  const int half = meet();
  float y;
  memcpy(&y, exchange_of(half, (thread_index() % 32) ^ mask), 4);
  return y;
}
DEV u32 shuffle_xor_word(u32 x, int mask) {
  exchange()[0] = x;
  const int half = meet();
  return exchange_of(half, (thread_index() % 32) ^ mask)[0];
}

// ---- global memory
template <class T> DEV float read(const T* p, bool ok) { if (!ok) return 0.f; check_cached(p, sizeof(T)); return to_float(*p); }
template <class T> DEV int read_index(const T* p, bool ok) { if (!ok) return 0; check_cached(p, sizeof(T)); return (int)*p; }
DEV float read_fresh(const float* p, bool ok) { if (!ok) return 0.f; check_global(p, 4, false); return *p; }
DEV void read_fresh_two(float& x, float& y, const float* p, bool ok) { x = y = 0.f; if (!ok) return; check_aligned(p, 8); check_global(p, 8, false); x = p[0]; y = p[1]; }
template <class T> DEV void write(T* p, float x) { check_global(p, sizeof(T), true); *p = Convert<T>::of(x); }
template <class T> DEV void write_two(T* p, float x, float y) { check_aligned(p, 2 * sizeof(T)); write(p, x); write(p + 1, y); }
template <class T> DEV void write_chunk(T* p, const u32 (&w)[4]) { check_aligned(p, 16); check_global(p, 16, true); memcpy((void*)p, w, 16); }
template <class T> DEV u16 bits_at(const T* p) { check_cached(p, 2); return p->bits; }
template <class T> DEV u32 read_words(const T* p) { check_cached(p, 4); u32 w; memcpy(&w, p, 4); return w; }

// ---- shared memory
template <class T> DEV float shared_read(u32 at) { note_read(at, 2); T x; memcpy(&x, shared_bytes() + at, 2); return to_float(x); }
template <class T> DEV void shared_write(u32 at, float x) { note_write(at, 2); T v = Convert<T>::of(x); memcpy(shared_bytes() + at, &v, 2); }
DEV float shared_read_float(u32 at) { note_read(at, 4); float x; memcpy(&x, shared_bytes() + at, 4); return x; }
DEV void shared_write_float(u32 at, float x) { note_write(at, 4); memcpy(shared_bytes() + at, &x, 4); }
DEV void shared_read_two(float& x, float& y, u32 at) { note_read(at, 8); memcpy(&x, shared_bytes() + at, 4); memcpy(&y, shared_bytes() + at + 4, 4); }
DEV void shared_write_two(u32 at, float x, float y) { note_write(at, 8); memcpy(shared_bytes() + at, &x, 4); memcpy(shared_bytes() + at + 4, &y, 4); }
DEV void shared_write_word(u32 at, u32 x) { note_write(at, 4); memcpy(shared_bytes() + at, &x, 4); }
DEV void shared_write_chunk(u32 at, const u32 (&x)[4]) { note_write(at, 16); memcpy(shared_bytes() + at, x, 16); }

// ---- fragments
DEV void load_matrices_any(u32 (&r)[4], u32 address, bool transposed) {
  note_read(address, 16);
  exchange()[0] = address;
  const int half = meet(), l = thread_index() % 32;
  const unsigned char* shared = shared_bytes();
  for (int i = 0; i < 4; i++) {
    if (!transposed) { memcpy(&r[i], shared + exchange_of(half, i * 8 + l / 4)[0] + (l % 4) * 4, 4); continue; }
    u16 low, high;
    memcpy(&low, shared + exchange_of(half, i * 8 + (l % 4) * 2)[0] + (l / 4) * 2, 2);
    memcpy(&high, shared + exchange_of(half, i * 8 + (l % 4) * 2 + 1)[0] + (l / 4) * 2, 2);
    r[i] = low | ((u32)high << 16);
  }
}
DEV void load_matrices(u32 (&r)[4], u32 address) { load_matrices_any(r, address, false); }
DEV void load_matrices_transposed(u32 (&r)[4], u32 address) { load_matrices_any(r, address, true); }
template <class T> DEV float part(u32 v, int k) { return to_float(T{(u16)(k ? v >> 16 : v)}); }
template <class T> static void multiply_add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  u32* mine = exchange();
  memcpy(mine, a, 16);
  mine[4] = b0; mine[5] = b1;
  const int half = meet(), l = thread_index() % 32, g = l / 4, t = l % 4;
  for (int e = 0; e < 4; e++) {
    const int m = g + (e >> 1) * 8, n = t * 2 + (e & 1);
    float sum = d[e];
    for (int k = 0; k < 16; k++)
      sum += part<T>(exchange_of(half, (m % 8) * 4 + (k % 8) / 2)[(m >= 8) + 2 * (k >= 8)], k & 1) *
             part<T>(exchange_of(half, n * 4 + (k % 8) / 2)[4 + (k >= 8)], k & 1);
    d[e] = sum;
  }
}

// ---- blocks that wait for each other
int arrive(int* counter);
DEV void next_kernel_may_begin() {}  // kernels run one after the other
void kernel_before_is_over();
void reset(int* counter);
void wait_for(const int* counter, int total);

// ---- blocks of a cluster
void cluster_barrier();
void cluster_arrive();
void cluster_wait();
u32 cluster_address(u32 address, int rank);
void send_to_cluster(u32 to, u32 mbarrier, const float* values, int count);
DEV void cluster_send(u32 to, u32 mbarrier, float x) { send_to_cluster(to, mbarrier, &x, 1); }
DEV void cluster_send_two(u32 to, u32 mbarrier, float x, float y) { const float both[] = {x, y}; send_to_cluster(to, mbarrier, both, 2); }
