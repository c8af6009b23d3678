// What the emitted text needs of the GPU: movement, matmul of fragments, conversions. No include, so NVRTC parses little.
typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;
typedef long long i64;
#define DEV static __device__ __forceinline__
#define SHARED_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]
#define NEG_INF __int_as_float(0xff800000)
#define POS_INF __int_as_float(0x7f800000)
#define NOT_A_NUMBER __int_as_float(0x7fffffff)
struct f16 { u16 bits; };
struct bf16 { u16 bits; };

DEV u32 multiply_high(u32 a, u32 b) { return __umulhi(a, b); }
// A number whose origin the compiler is not to see: it would take sums with it apart, and compute their parts again at every use.
DEV u32 apart(u32 x) { asm("" : "+r"(x)); return x; }
DEV u64 apart(u64 x) { asm("" : "+l"(x)); return x; }
template <class T> DEV const T* apart(const T* p) { asm("" : "+l"(p)); return p; }
// What is the same in all threads of a warp, so that the compiler knows it: descriptors of tiles stay in uniform registers.
DEV int of_warp(int x) { return __shfl_sync(0xffffffffu, x, 0); }
DEV u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// ---- conversions
DEV float to_float(float x) { return x; }
DEV float to_float(f16 x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits)); return r; }
DEV float to_float(bf16 x) { return __int_as_float((int)((u32)x.bits << 16)); }
template <class T> struct Convert;
template <> struct Convert<float> { static __device__ __forceinline__ float of(float x) { return x; } };
template <> struct Convert<f16> {
  static __device__ __forceinline__ f16 of(float x) { f16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(x)); return r; }
  static __device__ __forceinline__ u32 two(float low, float high) {
    u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r; }
};
template <> struct Convert<bf16> {
  static __device__ __forceinline__ bf16 of(float x) { bf16 r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(x)); return r; }
  static __device__ __forceinline__ u32 two(float low, float high) {
    u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low)); return r; }
};

// ---- arithmetic. Maximum and minimum propagate NaN, as the meaning of graphs does.
DEV float exp2_of(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEV float log2_of(float x) { float y; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEV float recip_of(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEV float sqrt_of(float x) { float y; asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEV float rsqrt_of(float x) { float y; asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEV float maximum(float a, float b) { float y; asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
DEV float minimum(float a, float b) { float y; asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
DEV float shuffle_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
DEV u32 shuffle_xor_word(u32 x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
// a - b, and the least number where it is below that.
DEV int less(int a, int b) { int y; asm("sub.sat.s32 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b)); return y; }
DEV void warp_barrier() { __syncwarp(); }
DEV void block_barrier() { __syncthreads(); }
template <int THREADS> DEV void team_barrier(int team) { asm volatile("bar.sync %0, %1;" :: "r"(team + 1), "n"(THREADS) : "memory"); }

// ---- global memory. Temporaries that another block wrote are read past the first-level cache.
template <class T> DEV float read(const T* p, bool ok) { return ok ? to_float(*p) : 0.f; }
DEV int read_index(const int* p, bool ok) { return ok ? __ldg(p) : 0; }
DEV int read_index(const i64* p, bool ok) { return ok ? (int)__ldg(p) : 0; }
DEV int read_index(const unsigned char* p, bool ok) { return ok ? (int)__ldg(p) : 0; }
// No branch: several of them go out together.
DEV float read_fresh(const float* p, bool ok) {
  float x;
  asm volatile("{.reg .pred p; setp.ne.b32 p, %2, 0; mov.f32 %0, 0f00000000; @p ld.global.cg.f32 %0, [%1];}"
    : "=f"(x) : "l"(p), "r"((int)ok) : "memory");
  return x; }
DEV void read_fresh_two(float& x, float& y, const float* p, bool ok) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %3, 0; mov.f32 %0, 0f00000000; mov.f32 %1, 0f00000000; @p ld.global.cg.v2.f32 {%0, %1}, [%2];}"
    : "=f"(x), "=f"(y) : "l"(p), "r"((int)ok) : "memory"); }
template <class T> DEV void write(T* p, float x) { *p = Convert<T>::of(x); }
template <class T> DEV void write_two(T* p, float x, float y) { *(u32*)p = Convert<T>::two(x, y); }
DEV void write_two(float* p, float x, float y) { *(float2*)p = make_float2(x, y); }
template <class T> DEV void write_chunk(T* p, const u32 (&w)[4]) { *(uint4*)p = make_uint4(w[0], w[1], w[2], w[3]); }
template <class T> DEV u16 bits_at(const T* p) { return p->bits; }
template <class T> DEV u32 read_words(const T* p) { return __ldg((const u32*)p); }

// ---- shared memory, addresses in bytes
template <class T> DEV float shared_read(u32 address) {
  T x; asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x.bits) : "r"(address) : "memory"); return to_float(x); }
template <class T> DEV void shared_write(u32 address, float x) {
  asm volatile("st.shared.u16 [%0], %1;" :: "r"(address), "h"(Convert<T>::of(x).bits) : "memory"); }
DEV float shared_read_float(u32 address) {
  float x; asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory"); return x; }
DEV void shared_write_float(u32 address, float x) { asm volatile("st.shared.f32 [%0], %1;" :: "r"(address), "f"(x) : "memory"); }
DEV void shared_read_two(float& x, float& y, u32 address) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(address) : "memory"); }
DEV void shared_write_two(u32 address, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" :: "r"(address), "f"(x), "f"(y) : "memory"); }
DEV void shared_write_word(u32 address, u32 x) { asm volatile("st.shared.u32 [%0], %1;" :: "r"(address), "r"(x) : "memory"); }
DEV void shared_write_chunk(u32 address, const u32 (&x)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" :: "r"(address), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory"); }

// ---- asynchronous copies: 16 bytes, of which the first `bytes` come from global memory and the rest are zero
DEV void copy_chunk(u32 to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(bytes) : "memory"); }
DEV void copy_chunk_if(u32 to, const void* from, bool present) {
  asm volatile("{ .reg .pred absent; setp.eq.s32 absent, %2, 0;\n"
    "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, absent; }" :: "r"(to), "l"(from), "r"((int)present) : "memory"); }
DEV void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEV void copies_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

// ---- fragments
DEV void load_matrices(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory"); }
DEV void load_matrices_transposed(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory"); }
template <class T> struct Multiply;
#define CLEAVE_MULTIPLY(T, NAME) \
  template <> struct Multiply<T> { static __device__ __forceinline__ void add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) { \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)); } };
CLEAVE_MULTIPLY(f16, "f16")
CLEAVE_MULTIPLY(bf16, "bf16")
template <class T> DEV void multiply_add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) { Multiply<T>::add(d, a, b0, b1); }

// ---- blocks that wait for each other
// What a barrier ordered before it is published, and what others published before they arrived may be read after it.
DEV int arrive(int* counter) {
  int r; asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(r) : "l"(counter) : "memory"); return r; }
DEV void reset(int* counter) { *counter = 0; }
DEV void wait_for(const int* counter, int total) {
  int r;
  do { asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(r) : "l"(counter) : "memory"); } while (r < total); }

// ---- blocks of a cluster, which reach each other's shared memory
DEV void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\n barrier.cluster.wait.acquire;" ::: "memory"); }
// The two halves; they order what a fence has published before, such as that mbarriers are open.
DEV void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
DEV void cluster_wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }
DEV u32 cluster_address(u32 address, int rank) {
  u32 r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank)); return r; }
// Stores that nobody waits for here: bytes count at an mbarrier of the block that they go to.
DEV void cluster_send(u32 to, u32 mbarrier, float x) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" :: "r"(to), "f"(x), "r"(mbarrier) : "memory"); }
DEV void cluster_send_two(u32 to, u32 mbarrier, float x, float y) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];"
    :: "r"(to), "f"(x), "f"(y), "r"(mbarrier) : "memory"); }
// ---- kernels on one stream: the next one may begin while this one runs; it waits itself before it uses memory (sm_90)
DEV void next_kernel_may_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// The kernel before has ended, and what it has written may be read.
DEV void kernel_before_is_over() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// ---- vectors of rows. Nobody else reads a row, so it need not stay in the first-level cache; what rows share may.
// No branch: several of them go out together.
#define CLEAVE_LOAD_WORDS(name, how, when) \
  DEV void name(u32* w, const void* p, bool ok) { \
    asm when("{.reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;" \
      " @p ld.global" how ".v4.u32 {%0, %1, %2, %3}, [%4];}" \
      : "=&r"(w[0]), "=&r"(w[1]), "=&r"(w[2]), "=&r"(w[3]) : "l"(p), "r"((int)ok)); }
CLEAVE_LOAD_WORDS(load_words, ".nc.L1::no_allocate", )
CLEAVE_LOAD_WORDS(load_words_shared, ".nc", )
CLEAVE_LOAD_WORDS(load_words_fresh, ".cg", volatile)
DEV float float_of(u32 w) { return __int_as_float((int)w); }
DEV u32 word_of(float x) { return (u32)__float_as_int(x); }
DEV void split_word(float& x, float& y, u32 w, f16) {
  asm("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}" : "=f"(x), "=f"(y) : "r"(w)); }
DEV void split_word(float& x, float& y, u32 w, bf16) { x = float_of(w << 16); y = float_of(w & 0xffff0000u); }
// Shared by the GPU and the emulator: plain C++.
DEV int least(int a, int b) { return a < b ? a : b; }
DEV int greatest(int a, int b) { return a > b ? a : b; }
DEV float where(bool ok, float x) { return ok ? x : 0.f; }
DEV int floor_divide(int a, int b) { int q = a / b; return q * b != a && ((a < 0) != (b < 0)) ? q - 1 : q; }
DEV int floor_modulo(int a, int b) { return a - floor_divide(a, b) * b; }
DEV i64 floor_divide(i64 a, i64 b) { i64 q = a / b; return q * b != a && ((a < 0) != (b < 0)) ? q - 1 : q; }
DEV i64 floor_modulo(i64 a, i64 b) { return a - floor_divide(a, b) * b; }
// x / n for 0 <= x < 2^31 and n >= 1, given min(2^31 - 1, floor(2^31 / n)): the product is at most one too small.
DEV int quotient(int x, int n, int reciprocal) {
  const int q = (int)multiply_high(2u * (u32)x, (u32)reciprocal);
  return q + (x - q * n >= n);
}
template <class T> DEV void multiply_add_at(float* d, const u32 (&a)[4], u32 b0, u32 b1) { multiply_add<T>(*(float (*)[4])d, a, b0, b1); }
template <class T> DEV u32 pack(float low, float high) { return Convert<T>::two(low, high); }
template <class T> DEV float half_of(u32 word, int high) { T x; x.bits = (u16)(high ? word >> 16 : word); return to_float(x); }
// Two neighbours of an array at an even place, in one word.
template <class T> DEV u32 read_word(const T* p, bool first, bool second) {
  return second ? read_words(p) : first ? (u32)bits_at(p) : 0u;
}
template <class T> DEV float round_to(float x) { return to_float(Convert<T>::of(x)); }

// A shared tile is rows of 16-byte chunks. Chunks are permuted so that eight rows of one chunk column meet all banks.
template <int CHUNKS> DEV u32 swizzle(int row, int chunk) {
  const int group = CHUNKS & -CHUNKS, mask = (group < 8 ? group : 8) - 1, step = CHUNKS < 8 && group == CHUNKS ? 8 / CHUNKS : 1;
  return (u32)((row * CHUNKS + (chunk ^ ((row / step) & mask))) * 16);
}
// From a thread's own chunk of a tile to one that lies `rows` below and `chunks` to the right, which have no bit below 8 in common with
// the numbers of its own. CHUNKS is a multiple of 8, and SLAB bytes lead from eight chunks of a row to the next eight.
template <int CHUNKS, int SLAB> DEV u32 beside(u32 own, int rows, int chunks) {
  return (own ^ (u32)(((rows ^ chunks) & 7) * 16)) + (u32)(rows * CHUNKS * 16 + (chunks >> 3) * SLAB);
}
template <class T, int CHUNKS> DEV float tile_read(u32 tile, int row, int column) {
  return shared_read<T>(tile + swizzle<CHUNKS>(row, column >> 3) + (column & 7) * 2);
}
template <class T, int CHUNKS> DEV void tile_write(u32 tile, int row, int column, float x) {
  shared_write<T>(tile + swizzle<CHUNKS>(row, column >> 3) + (column & 7) * 2, x);
}
// Up to eight elements at any alignment, the rest zero.
template <class T> DEV void copy_elements(u32 to, const T* from, int count) {
  if (count >= 8 && ((u64)from & 15) == 0) { copy_chunk(to, from, 16); return; }
  u32 words[4];
#pragma unroll
  for (int j = 0; j < 4; j++)
    words[j] = (2 * j < count ? bits_at(from + 2 * j) : 0u) | ((2 * j + 1 < count ? (u32)bits_at(from + 2 * j + 1) : 0u) << 16);
  shared_write_chunk(to, words);
}
template <class T> DEV void write_pair(T* p, float x, float y, bool second) {
  if (second && ((u64)p & (2 * sizeof(T) - 1)) == 0) { write_two(p, x, y); return; }
  write(p, x);
  if (second) write(p + 1, y);
}
DEV void read_fresh_pair(float& x, float& y, const float* p, bool first, bool second) {
  if (second && ((u64)p & 7) == 0) { read_fresh_two(x, y, p, true); return; }
  x = read_fresh(p, first);
  y = read_fresh(p + 1, second);
}

// exp_diff(a, b) = exp(a - b), and 0 where a = -inf whatever b. The base of b is finite, so that -inf minus it stays -inf. The
// difference comes first: scaled values that are large and equal would not cancel.
#define LOG2_E 1.44269504f
DEV float exp_of(float a) { return exp2_of(a * LOG2_E); }
DEV float exp_base(float b) { return maximum(b, -3.402823466e+38f); }
DEV float exp_diff(float a, float b) { return exp_of(a - exp_base(b)); }
DEV float exp2_base(float b) { return exp_base(b * LOG2_E); }  // of scores up to some 1e5: their products cancel well enough
DEV float square(float a) { return a * a; }
DEV float log_of(float a) { return log2_of(a) * 0.693147181f; }
DEV float recip0(float a) { return a == 0.f ? 0.f : recip_of(a); }
DEV float sigmoid(float a) {  // without overflow on either side
  const float z = exp_of(-fabsf(a)), r = recip_of(1.f + z);
  return a < 0.f ? z * r : r;
}
// tanh where |a| < NEAR_ZERO, to 1.1e-7 of it; (1 - z) / (1 + z) with z = exp(-2 |a|) cancels there.
#define NEAR_ZERO 0.5625f
DEV float tanh_near_zero(float a) {
  const float s = a * a;
  return a + a * s * (-0.33332876f + s * (0.13319079f + s * (-0.05256511f + s * 0.01623291f)));
}
DEV float tanh_of(float a) {
  const float z = exp_of(-2.f * fabsf(a)), y = (1.f - z) * recip_of(1.f + z);
  return fabsf(a) < NEAR_ZERO ? tanh_near_zero(a) : copysignf(y, a);
}
DEV float silu(float a) { return a * sigmoid(a); }
DEV float quad_sum(float x) { x += shuffle_xor(x, 1); return x + shuffle_xor(x, 2); }
DEV float quad_max(float x) { x = maximum(x, shuffle_xor(x, 1)); return maximum(x, shuffle_xor(x, 2)); }
DEV float quad_min(float x) { x = minimum(x, shuffle_xor(x, 1)); return minimum(x, shuffle_xor(x, 2)); }
// Lane t of a quad has word t of four rows of words; then it has row t.
DEV void quad_transpose(u32 (&w)[4], int lane) {
  const bool odd = lane & 1, high = lane & 2;
  u32 a = shuffle_xor_word(odd ? w[0] : w[1], 1), b = shuffle_xor_word(odd ? w[2] : w[3], 1);
  if (odd) { w[0] = a; w[2] = b; } else { w[1] = a; w[3] = b; }
  a = shuffle_xor_word(high ? w[0] : w[2], 2); b = shuffle_xor_word(high ? w[1] : w[3], 2);
  if (high) { w[0] = a; w[1] = b; } else { w[2] = a; w[3] = b; }
}
// ---- V elements of a row, a multiple of 16 bytes at a multiple of 16 bytes
template <int V, class T> DEV void spread_words(float (&v)[V], const u32 (&w)[V * sizeof(T) / 4], const T* p) {
#pragma unroll
  for (int j = 0; j < V / 2; j++) split_word(v[2 * j], v[2 * j + 1], w[j], T());
}
template <int V> DEV void spread_words(float (&v)[V], const u32 (&w)[V], const float* p) {
#pragma unroll
  for (int j = 0; j < V; j++) v[j] = float_of(w[j]);
}
#define CLEAVE_READ_VECTOR(name, load) \
  template <int V, class T> DEV void name(float (&v)[V], const T* p, bool ok) { \
    u32 w[V * sizeof(T) / 4]; \
    _Pragma("unroll") for (int j = 0; j < (int)(V * sizeof(T) / 16); j++) load(w + 4 * j, p + j * (16 / sizeof(T)), ok); \
    spread_words(v, w, p); }
CLEAVE_READ_VECTOR(read_vector, load_words)
CLEAVE_READ_VECTOR(read_vector_shared, load_words_shared)
CLEAVE_READ_VECTOR(read_vector_fresh, load_words_fresh)
template <int V, class T> DEV void write_vector(T* p, const float (&v)[V]) {
  u32 w[4];
#pragma unroll
  for (int j = 0; j < 4; j++) w[j] = pack<T>(v[2 * j], v[2 * j + 1]);
  write_chunk(p, w);
}
template <int V> DEV void write_vector(float* p, const float (&v)[V]) {
#pragma unroll
  for (int i = 0; i < V / 4; i++) {
    u32 w[4];
#pragma unroll
    for (int j = 0; j < 4; j++) w[j] = word_of(v[4 * i + j]);
    write_chunk(p + 4 * i, w);
  }
}
// The elements of a vector that exist, where it does not wholly: the others are zero.
template <int V, class T> DEV void read_tail(float (&v)[V], const T* p, int left) {
  if (left <= 0 || left >= V) return;
#pragma unroll
  for (int j = 0; j < V; j++) v[j] = read(p + j, j < left);
}
template <int V, class T> DEV void write_tail(T* p, const float (&v)[V], int left) {
  if (left <= 0 || left >= V) return;
#pragma unroll
  for (int j = 0; j < V; j++) if (j < left) write(p + j, v[j]);
}
// ---- what the threads that share a row have of it, joined in all of them
template <int LANES> DEV float lanes_sum(float x) {
#pragma unroll
  for (int mask = LANES / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}
template <int LANES> DEV float lanes_max(float x) {
#pragma unroll
  for (int mask = LANES / 2; mask > 0; mask /= 2) x = maximum(x, shuffle_xor(x, mask));
  return x;
}
template <int LANES> DEV float lanes_min(float x) {
#pragma unroll
  for (int mask = LANES / 2; mask > 0; mask /= 2) x = minimum(x, shuffle_xor(x, mask));
  return x;
}
// ---- exponentials for results in FP32: the rounding of a product by log2(e) is made good
DEV float exp_precise(float a) {
  const float t = a * LOG2_E, e = exp2_of(t), rest = fmaf(a, 1.92596303e-8f, fmaf(a, LOG2_E, -t));
  return fabsf(t) < 126.f ? fmaf(e, rest * 0.693147181f, e) : e;
}
DEV float exp_diff_precise(float a, float b) { return exp_precise(a - exp_base(b)); }
DEV float sigmoid_precise(float a) {
  const float z = exp_precise(-fabsf(a)), r = recip_of(1.f + z);
  return a < 0.f ? z * r : r;
}
DEV float silu_precise(float a) { return a * sigmoid_precise(a); }
// ---- kernel
extern "C" __global__ void __launch_bounds__(128, 1) softmax_kernel(const f16* __restrict__ x_2, f16* out, int m_tiles, int dim_m, int dim_n) {
  SHARED_MEMORY(shared);
  const u32 shared_base = shared_address(shared);
  const int thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
  const int row = thread / 64, place = thread % 64;
  int block = blockIdx.x;
  const int m_tile = block;
  {
    const int m_start = m_tile * 2;
    const int m_last = least(m_start + 2, dim_m) - 1;
    const int m_row[1] = {(m_start + row)};
    kernel_before_is_over();
    if (((u64)x_2 & 15) == 0 && (dim_n & 7) == 0 && ((u64)out & 15) == 0) {
      // for n in [0, n) carry m1[m]
      float m1[1] = {NEG_INF};
      const int n_low = 0;
      const int n_high = dim_n;
      const int n_start = n_low;
      // x_2[m, n] = x[m, n]
      const f16* x_2_2_source = x_2 + (n_start + ((i64)m_row[0] * dim_n)) + place * 8;
      float x_2_2[2][8];
      #pragma unroll
      for (int n = 0; n < 2; n++) {
        read_vector<8>(x_2_2[n], x_2_2_source + n * 512, m_row[0] < dim_m && (n_start + (n * 512 + 0 + place * 8)) < dim_n);
      }
      // k1[m, n] = where(n < dim.n, ref('x_2', m, n), const('-inf'))
      float k1[2][8];
      #pragma unroll
      for (int n = 0; n < 2; n++) {
        #pragma unroll
        for (int e = 0; e < 8; e++) {
          k1[n][e] = x_2_2[n][e];
        }
      }
      if (!(((n_start + 1023) - dim_n) < 0)) {
        #pragma unroll
        for (int n = 0; n < 2; n++) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            if (!((n * 512 + e) < less(less(dim_n, n_start), place * 8))) k1[n][e] = NEG_INF;
          }
        }
      }
      // m1 = max(m1~, max(n, ref('k1', m, n)))
      #pragma unroll
      for (int n = 0; n < 2; n++) {
        #pragma unroll
        for (int h = 0; h < 4; h++) {
          m1[0] = (maximum(m1[0], (maximum(k1[n][2 * h], k1[n][2 * h + 1]))));
        }
      }
      for (int n_tile = n_low + 1024; n_tile < n_high; n_tile += 1024) {
        const int n_start = n_tile;
        // x_2[m, n] = x[m, n]
        const f16* x_2_3_source = x_2 + (n_start + ((i64)m_row[0] * dim_n)) + place * 8;
        float x_2_3[2][8];
        #pragma unroll
        for (int n = 0; n < 2; n++) {
          read_vector<8>(x_2_3[n], x_2_3_source + n * 512, m_row[0] < dim_m && (n_start + (n * 512 + 0 + place * 8)) < dim_n);
        }
        // k1[m, n] = where(n < dim.n, ref('x_2', m, n), const('-inf'))
        float k1_2[2][8];
        #pragma unroll
        for (int n = 0; n < 2; n++) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            k1_2[n][e] = x_2_3[n][e];
          }
        }
        if (!(((n_start + 1023) - dim_n) < 0)) {
          #pragma unroll
          for (int n = 0; n < 2; n++) {
            #pragma unroll
            for (int e = 0; e < 8; e++) {
              if (!((n * 512 + e) < less(less(dim_n, n_start), place * 8))) k1_2[n][e] = NEG_INF;
            }
          }
        }
        // m1 = max(m1~, max(n, ref('k1', m, n)))
        #pragma unroll
        for (int n = 0; n < 2; n++) {
          #pragma unroll
          for (int h = 0; h < 4; h++) {
            m1[0] = (maximum(m1[0], (maximum(k1_2[n][2 * h], k1_2[n][2 * h + 1]))));
          }
        }
      }
      m1[0] = lanes_max<32>(m1[0]);
      {
        const u32 parts = shared_base + 0;
        if (lane == 0) {
          shared_write_float(parts + 0 + 4 * warp, m1[0]);
        }
        block_barrier();
        m1[0] = NEG_INF;
        #pragma unroll
        for (int w = 0; w < 2; w++) {
          m1[0] = (maximum(m1[0], shared_read_float(parts + 0 + 4 * (row * 2 + w))));
        }
      }
      // for n in [0, n) carry s1[m]
      float s1[1] = {0.f};
      const int n_low_2 = 0;
      const int n_high_2 = dim_n;
      const int n_start_2 = n_low_2;
      // e2[m, n] = exp_diff(ref('x_3', m, n), ref('m1', m))
      float e2[2][8];
      float base[1];
      #pragma unroll
      for (int h = 0; h < 1; h++) {
        base[h] = exp_base(m1[h]);
      }
      #pragma unroll
      for (int n = 0; n < 2; n++) {
        #pragma unroll
        for (int e = 0; e < 8; e++) {
          e2[n][e] = exp_of(x_2_2[n][e] - base[0]);
        }
      }
      // k2[m, n] = where(n < dim.n, ref('e2', m, n), 0.0)
      float k2[2][8];
      #pragma unroll
      for (int n = 0; n < 2; n++) {
        #pragma unroll
        for (int e = 0; e < 8; e++) {
          k2[n][e] = e2[n][e];
        }
      }
      if (!(((n_start_2 + 1023) - dim_n) < 0)) {
        #pragma unroll
        for (int n = 0; n < 2; n++) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            if (!((n * 512 + e) < less(less(dim_n, n_start_2), place * 8))) k2[n][e] = 0.f;
          }
        }
      }
      // s1 = sum(s1~, sum(n, ref('k2', m, n)))
      #pragma unroll
      for (int n = 0; n < 2; n++) {
        #pragma unroll
        for (int h = 0; h < 4; h++) {
          s1[0] = (s1[0] + (k2[n][2 * h] + k2[n][2 * h + 1]));
        }
      }
      for (int n_tile_2 = n_low_2 + 1024; n_tile_2 < n_high_2; n_tile_2 += 1024) {
        const int n_start_2 = n_tile_2;
        // x_3[m, n] = x[m, n]
        const f16* x_3_source = x_2 + (n_start_2 + ((i64)m_row[0] * dim_n)) + place * 8;
        float x_3[2][8];
        #pragma unroll
        for (int n = 0; n < 2; n++) {
          read_vector<8>(x_3[n], x_3_source + n * 512, m_row[0] < dim_m && (n_start_2 + (n * 512 + 0 + place * 8)) < dim_n);
        }
        // e2[m, n] = exp_diff(ref('x_3', m, n), ref('m1', m))
        float e2_2[2][8];
        float base_2[1];
        #pragma unroll
        for (int h = 0; h < 1; h++) {
          base_2[h] = exp_base(m1[h]);
        }
        #pragma unroll
        for (int n = 0; n < 2; n++) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            e2_2[n][e] = exp_of(x_3[n][e] - base_2[0]);
          }
        }
        // k2[m, n] = where(n < dim.n, ref('e2', m, n), 0.0)
        float k2_2[2][8];
        #pragma unroll
        for (int n = 0; n < 2; n++) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            k2_2[n][e] = e2_2[n][e];
          }
        }
        if (!(((n_start_2 + 1023) - dim_n) < 0)) {
          #pragma unroll
          for (int n = 0; n < 2; n++) {
            #pragma unroll
            for (int e = 0; e < 8; e++) {
              if (!((n * 512 + e) < less(less(dim_n, n_start_2), place * 8))) k2_2[n][e] = 0.f;
            }
          }
        }
        // s1 = sum(s1~, sum(n, ref('k2', m, n)))
        #pragma unroll
        for (int n = 0; n < 2; n++) {
          #pragma unroll
          for (int h = 0; h < 4; h++) {
            s1[0] = (s1[0] + (k2_2[n][2 * h] + k2_2[n][2 * h + 1]));
          }
        }
      }
      s1[0] = lanes_sum<32>(s1[0]);
      {
        const u32 parts_2 = shared_base + 128;
        if (lane == 0) {
          shared_write_float(parts_2 + 0 + 4 * warp, s1[0]);
        }
        block_barrier();
        s1[0] = 0.f;
        #pragma unroll
        for (int w = 0; w < 2; w++) {
          s1[0] = (s1[0] + shared_read_float(parts_2 + 0 + 4 * (row * 2 + w)));
        }
      }
      // e3[m] = recip0(ref('s1', m))
      float e3[1];
      #pragma unroll
      for (int h = 0; h < 1; h++) {
        e3[h] = recip0(s1[h]);
      }
      next_kernel_may_begin();
      // for n in [0, n)
      const int n_low_3 = 0;
      const int n_high_3 = dim_n;
      const int n_start_3 = n_low_3;
      // e4[m, n] = (ref('e1', m, n) * ref('e3', m))
      float e4[2][8];
      #pragma unroll
      for (int n = 0; n < 2; n++) {
        #pragma unroll
        for (int e = 0; e < 8; e++) {
          e4[n][e] = (e2[n][e] * e3[0]);
        }
      }
      // out[m, n] = e4
      {
        f16* target = out + (n_start_3 + ((i64)m_row[0] * dim_n)) + place * 8;
        #pragma unroll
        for (int n = 0; n < 2; n++) {
          float values[8];
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            values[e] = e4[n][e];
          }
          if (m_row[0] < dim_m && (n_start_3 + (n * 512 + 0 + place * 8)) < dim_n) write_vector(target + n * 512, values);
        }
      }
      for (int n_tile_3 = n_low_3 + 1024; n_tile_3 < n_high_3; n_tile_3 += 1024) {
        const int n_start_3 = n_tile_3;
        // x_1[m, n] = x[m, n]
        const f16* x_1_source = x_2 + (n_start_3 + ((i64)m_row[0] * dim_n)) + place * 8;
        float x_1[2][8];
        #pragma unroll
        for (int n = 0; n < 2; n++) {
          read_vector<8>(x_1[n], x_1_source + n * 512, m_row[0] < dim_m && (n_start_3 + (n * 512 + 0 + place * 8)) < dim_n);
        }
        // e1[m, n] = exp_diff(ref('x_1', m, n), ref('m1', m))
        float e1[2][8];
        float base_3[1];
        #pragma unroll
        for (int h = 0; h < 1; h++) {
          base_3[h] = exp_base(m1[h]);
        }
        #pragma unroll
        for (int n = 0; n < 2; n++) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            e1[n][e] = exp_of(x_1[n][e] - base_3[0]);
          }
        }
        // e4[m, n] = (ref('e1', m, n) * ref('e3', m))
        float e4_2[2][8];
        #pragma unroll
        for (int n = 0; n < 2; n++) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            e4_2[n][e] = (e1[n][e] * e3[0]);
          }
        }
        // out[m, n] = e4
        {
          f16* target_2 = out + (n_start_3 + ((i64)m_row[0] * dim_n)) + place * 8;
          #pragma unroll
          for (int n = 0; n < 2; n++) {
            float values_2[8];
            #pragma unroll
            for (int e = 0; e < 8; e++) {
              values_2[e] = e4_2[n][e];
            }
            if (m_row[0] < dim_m && (n_start_3 + (n * 512 + 0 + place * 8)) < dim_n) write_vector(target_2 + n * 512, values_2);
          }
        }
      }
    }
    else {
      // for n in [0, n) carry m1[m]
      float m1_2[1] = {NEG_INF};
      const int n_low_4 = 0;
      const int n_high_4 = dim_n;
      for (int n_tile_4 = n_low_4; n_tile_4 < n_high_4; n_tile_4 += 512) {
        const int n_start_4 = n_tile_4;
        // x_2[m, n] = x[m, n]
        const f16* x_2_4_source = x_2 + (n_start_4 + ((i64)m_row[0] * dim_n)) + place;
        float x_2_4[1][8];
        #pragma unroll
        for (int n = 0; n < 1; n++) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            x_2_4[n][e] = read(x_2_4_source + (n * 8 + e) * 64, m_row[0] < dim_m && (n_start_4 + ((n * 8 + e) * 64 + place)) < dim_n);
          }
        }
        // k1[m, n] = where(n < dim.n, ref('x_2', m, n), const('-inf'))
        float k1_3[1][8];
        #pragma unroll
        for (int n = 0; n < 1; n++) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            k1_3[n][e] = x_2_4[n][e];
          }
        }
        if (!(((n_start_4 + 511) - dim_n) < 0)) {
          #pragma unroll
          for (int n = 0; n < 1; n++) {
            #pragma unroll
            for (int e = 0; e < 8; e++) {
              if (!(((n * 8 + e) * 64) < less(less(dim_n, n_start_4), place))) k1_3[n][e] = NEG_INF;
            }
          }
        }
        // m1 = max(m1~, max(n, ref('k1', m, n)))
        #pragma unroll
        for (int n = 0; n < 1; n++) {
          #pragma unroll
          for (int h = 0; h < 4; h++) {
            m1_2[0] = (maximum(m1_2[0], (maximum(k1_3[n][2 * h], k1_3[n][2 * h + 1]))));
          }
        }
      }
      m1_2[0] = lanes_max<32>(m1_2[0]);
      {
        const u32 parts_3 = shared_base + 0;
        if (lane == 0) {
          shared_write_float(parts_3 + 0 + 4 * warp, m1_2[0]);
        }
        block_barrier();
        m1_2[0] = NEG_INF;
        #pragma unroll
        for (int w = 0; w < 2; w++) {
          m1_2[0] = (maximum(m1_2[0], shared_read_float(parts_3 + 0 + 4 * (row * 2 + w))));
        }
      }
      // for n in [0, n) carry s1[m]
      float s1_2[1] = {0.f};
      const int n_low_5 = 0;
      const int n_high_5 = dim_n;
      for (int n_tile_5 = n_low_5; n_tile_5 < n_high_5; n_tile_5 += 512) {
        const int n_start_5 = n_tile_5;
        // x_3[m, n] = x[m, n]
        const f16* x_3_2_source = x_2 + (n_start_5 + ((i64)m_row[0] * dim_n)) + place;
        float x_3_2[1][8];
        #pragma unroll
        for (int n = 0; n < 1; n++) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            x_3_2[n][e] = read(x_3_2_source + (n * 8 + e) * 64, m_row[0] < dim_m && (n_start_5 + ((n * 8 + e) * 64 + place)) < dim_n);
          }
        }
        // e2[m, n] = exp_diff(ref('x_3', m, n), ref('m1', m))
        float e2_3[1][8];
        float base_4[1];
        #pragma unroll
        for (int h = 0; h < 1; h++) {
          base_4[h] = exp_base(m1_2[h]);
        }
        #pragma unroll
        for (int n = 0; n < 1; n++) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            e2_3[n][e] = exp_of(x_3_2[n][e] - base_4[0]);
          }
        }
        // k2[m, n] = where(n < dim.n, ref('e2', m, n), 0.0)
        float k2_3[1][8];
        #pragma unroll
        for (int n = 0; n < 1; n++) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            k2_3[n][e] = e2_3[n][e];
          }
        }
        if (!(((n_start_5 + 511) - dim_n) < 0)) {
          #pragma unroll
          for (int n = 0; n < 1; n++) {
            #pragma unroll
            for (int e = 0; e < 8; e++) {
              if (!(((n * 8 + e) * 64) < less(less(dim_n, n_start_5), place))) k2_3[n][e] = 0.f;
            }
          }
        }
        // s1 = sum(s1~, sum(n, ref('k2', m, n)))
        #pragma unroll
        for (int n = 0; n < 1; n++) {
          #pragma unroll
          for (int h = 0; h < 4; h++) {
            s1_2[0] = (s1_2[0] + (k2_3[n][2 * h] + k2_3[n][2 * h + 1]));
          }
        }
      }
      s1_2[0] = lanes_sum<32>(s1_2[0]);
      {
        const u32 parts_4 = shared_base + 128;
        if (lane == 0) {
          shared_write_float(parts_4 + 0 + 4 * warp, s1_2[0]);
        }
        block_barrier();
        s1_2[0] = 0.f;
        #pragma unroll
        for (int w = 0; w < 2; w++) {
          s1_2[0] = (s1_2[0] + shared_read_float(parts_4 + 0 + 4 * (row * 2 + w)));
        }
      }
      // e3[m] = recip0(ref('s1', m))
      float e3_2[1];
      #pragma unroll
      for (int h = 0; h < 1; h++) {
        e3_2[h] = recip0(s1_2[h]);
      }
      next_kernel_may_begin();
      // for n in [0, n)
      const int n_low_6 = 0;
      const int n_high_6 = dim_n;
      for (int n_tile_6 = n_low_6; n_tile_6 < n_high_6; n_tile_6 += 512) {
        const int n_start_6 = n_tile_6;
        // x_1[m, n] = x[m, n]
        const f16* x_1_2_source = x_2 + (n_start_6 + ((i64)m_row[0] * dim_n)) + place;
        float x_1_2[1][8];
        #pragma unroll
        for (int n = 0; n < 1; n++) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            x_1_2[n][e] = read(x_1_2_source + (n * 8 + e) * 64, m_row[0] < dim_m && (n_start_6 + ((n * 8 + e) * 64 + place)) < dim_n);
          }
        }
        // e1[m, n] = exp_diff(ref('x_1', m, n), ref('m1', m))
        float e1_2[1][8];
        float base_5[1];
        #pragma unroll
        for (int h = 0; h < 1; h++) {
          base_5[h] = exp_base(m1_2[h]);
        }
        #pragma unroll
        for (int n = 0; n < 1; n++) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            e1_2[n][e] = exp_of(x_1_2[n][e] - base_5[0]);
          }
        }
        // e4[m, n] = (ref('e1', m, n) * ref('e3', m))
        float e4_3[1][8];
        #pragma unroll
        for (int n = 0; n < 1; n++) {
          #pragma unroll
          for (int e = 0; e < 8; e++) {
            e4_3[n][e] = (e1_2[n][e] * e3_2[0]);
          }
        }
        // out[m, n] = e4
        {
          f16* target_3 = out + (n_start_6 + ((i64)m_row[0] * dim_n)) + place;
          #pragma unroll
          for (int n = 0; n < 1; n++) {
            #pragma unroll
            for (int e = 0; e < 8; e++) {
              if (m_row[0] < dim_m && (n_start_6 + ((n * 8 + e) * 64 + place)) < dim_n) write(target_3 + (n * 8 + e) * 64, e4_3[n][e]);
            }
          }
        }
      }
    }
  }
}
