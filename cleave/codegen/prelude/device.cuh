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
