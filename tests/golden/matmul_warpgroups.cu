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
// ---- boxes: copies by the copy engine (sm_90). A tensor map says where they lie; an mbarrier counts the bytes that have landed.
#undef SHARED_MEMORY
#define SHARED_MEMORY(name) extern __shared__ __align__(1024) unsigned char name[]  // the engine's swizzle follows the bits of addresses
struct __align__(64) TensorMap { u64 words[16]; };
DEV void fetch_map(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory"); }
DEV void mbarrier_open(u32 address, int arrivals = 1) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(address), "r"(arrivals) : "memory"); }
DEV void mbarrier_close(u32 address) { asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(address) : "memory"); }
// Orders ordinary stores to shared memory, mbarriers among them, before boxes that are asked for later.
DEV void boxes_may_follow() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Orders what this thread has copied to shared memory before matmuls by warpgroups that read it after a barrier.
DEV void tensor_cores_may_read() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEV void mbarrier_expect(u32 address, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(address), "r"(bytes) : "memory"); }
// Every thread that reads what landed waits itself. The phase of a parity is over once its bytes are there.
DEV void mbarrier_wait(u32 address, int parity) {
  u32 over;
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(over) : "r"(address), "r"(parity) : "memory");
  } while (!over); }
// At another block's mbarrier: an address of the cluster. What this block has read, and holds in registers, may be overwritten by
// whoever waits there: no write is published, so neither side needs the scope of the cluster, whose fences reach the whole device.
DEV void mbarrier_arrive_at(u32 address) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" :: "r"(address) : "memory"); }
DEV void mbarrier_wait_for_all(u32 address, int parity) { mbarrier_wait(address, parity); }
// Among threads of one block: what a thread has read may be overwritten by whoever waits there.
DEV void mbarrier_arrive(u32 address) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(address) : "memory"); }
// A number for all warps that wait at an mbarrier. Who tells has waited until every warp has read the number before.
DEV void mbarrier_tell(u32 address, u32 place, int x) {
  asm volatile("st.shared.s32 [%0], %1;" :: "r"(place), "r"(x) : "memory");
  mbarrier_arrive(address); }
DEV int mbarrier_told(u32 address, int parity, u32 place, u32 all_read) {
  int x = 0;
  if ((threadIdx.x & 31) == 0) {
    mbarrier_wait(address, parity);
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(x) : "r"(place) : "memory");
    mbarrier_arrive(all_read);
  }
  return __shfl_sync(0xffffffffu, x, 0); }
// A number that no other thread of the device gets.
DEV int take(int* counter) {
  int r; asm volatile("atom.relaxed.gpu.global.add.s32 %0, [%1], 1;" : "=r"(r) : "l"(counter) : "memory"); return r; }
template <int N> DEV void registers_take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N)); }
template <int N> DEV void registers_leave() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }
#define CLEAVE_BOX "cp.async.bulk.tensor."
#define CLEAVE_TO ".shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
DEV void copy_box(u32 to, const TensorMap& box, u32 address, int c0, int c1) {
  asm volatile(CLEAVE_BOX "2d" CLEAVE_TO "{%3, %4}], [%2];" :: "r"(to), "l"(&box), "r"(address), "r"(c0), "r"(c1) : "memory"); }
DEV void copy_box(u32 to, const TensorMap& box, u32 address, int c0, int c1, int c2) {
  asm volatile(CLEAVE_BOX "3d" CLEAVE_TO "{%3, %4, %5}], [%2];" :: "r"(to), "l"(&box), "r"(address), "r"(c0), "r"(c1), "r"(c2) : "memory"); }
DEV void copy_box(u32 to, const TensorMap& box, u32 address, int c0, int c1, int c2, int c3) {
  asm volatile(CLEAVE_BOX "4d" CLEAVE_TO "{%3, %4, %5, %6}], [%2];"
    :: "r"(to), "l"(&box), "r"(address), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory"); }
DEV void copy_box(u32 to, const TensorMap& box, u32 address, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(CLEAVE_BOX "5d" CLEAVE_TO "{%3, %4, %5, %6, %7}], [%2];"
    :: "r"(to), "l"(&box), "r"(address), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory"); }
// The box lands at the same place in every block of a mask, and counts at the same mbarrier of each.
#define CLEAVE_TO_ALL ".shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
DEV void copy_box_to_all(u32 to, const TensorMap& box, u32 address, int mask, int c0, int c1) {
  asm volatile(CLEAVE_BOX "2d" CLEAVE_TO_ALL "{%4, %5}], [%2], %3;"
    :: "r"(to), "l"(&box), "r"(address), "h"((u16)mask), "r"(c0), "r"(c1) : "memory"); }
DEV void copy_box_to_all(u32 to, const TensorMap& box, u32 address, int mask, int c0, int c1, int c2) {
  asm volatile(CLEAVE_BOX "3d" CLEAVE_TO_ALL "{%4, %5, %6}], [%2], %3;"
    :: "r"(to), "l"(&box), "r"(address), "h"((u16)mask), "r"(c0), "r"(c1), "r"(c2) : "memory"); }
DEV void copy_box_to_all(u32 to, const TensorMap& box, u32 address, int mask, int c0, int c1, int c2, int c3) {
  asm volatile(CLEAVE_BOX "4d" CLEAVE_TO_ALL "{%4, %5, %6, %7}], [%2], %3;"
    :: "r"(to), "l"(&box), "r"(address), "h"((u16)mask), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory"); }
DEV void copy_box_to_all(u32 to, const TensorMap& box, u32 address, int mask, int c0, int c1, int c2, int c3, int c4) {
  asm volatile(CLEAVE_BOX "5d" CLEAVE_TO_ALL "{%4, %5, %6, %7, %8}], [%2], %3;"
    :: "r"(to), "l"(&box), "r"(address), "h"((u16)mask), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory"); }

// ---- warpgroups: wgmma (sm_90a). Registers of the result belong to the tensor cores until the matmul was waited for.
DEV void warpgroup_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> DEV void warpgroup_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(LEFT) : "memory"); }
// The compiler does not know how long: values are in their registers here, and are read from them again.
template <int N> DEV void registers_settle(float (&d)[N][4]) {
  #pragma unroll
  for (int n = 0; n < N; n++) {
    #pragma unroll
    for (int e = 0; e < 4; e++) asm volatile("" : "+f"(d[n][e]) :: "memory");
  } }
template <class T, int WIDTH, bool TRANSPOSED>
DEV void warpgroup_multiply(float (&d)[WIDTH / 8][4], const u32 (&a)[4], u64 b, bool keep);
template <class T, int WIDTH, bool TRANSPOSED>
DEV void warpgroup_multiply_tiles(float (&d)[WIDTH / 8][4], u64 a, u64 b, bool keep);
// One team passes its turn to another, which waits for it: THREADS are those of both.
template <int THREADS> DEV void turn_wait(int team) { asm volatile("bar.sync %0, %1;" :: "r"(team + 8), "n"(THREADS) : "memory"); }
template <int THREADS> DEV void turn_pass(int team) { asm volatile("bar.arrive %0, %1;" :: "r"(team + 8), "n"(THREADS) : "memory"); }
DEV bool warp_any(bool x) { return __any_sync(0xffffffffu, x); }
template <> __device__ __forceinline__ void warpgroup_multiply_tiles<f16, 64, true>(float (&d)[8][4], u64 a, u64 b, bool keep) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 1; }"
    : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]) : "l"(a), "l"(b), "r"((int)keep) : "memory"); }
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

// A tile of boxes lies in slabs of CHUNKS 16-byte chunks a row, one after the other; inside a slab the swizzle is the copy engine's.
template <int CHUNKS, int ROWS> DEV u32 slabs(int row, int chunk) {
  return (u32)(chunk / CHUNKS * (ROWS * CHUNKS * 16)) + swizzle<CHUNKS>(row, chunk % CHUNKS);
}
template <class T, int CHUNKS, int ROWS> DEV float slab_read(u32 tile, int row, int column) {
  return shared_read<T>(tile + slabs<CHUNKS, ROWS>(row, column >> 3) + (column & 7) * 2);
}
DEV void clear_chunk(u32 address) {
  const u32 words[4] = {0u, 0u, 0u, 0u};
  shared_write_chunk(address, words);
}
// What a wgmma reads in slabs: distances in bytes, the swizzle is that of the boxes.
template <int SWIZZLE> DEV u64 matrix_descriptor(u32 address, int leading, int stride) {
  const u64 kind = SWIZZLE == 128 ? 1 : SWIZZLE == 64 ? 2 : 3;
  return (u64)((address & 0x3ffff) >> 4) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | kind << 62; }
// Of what begins so many bytes, a multiple of 16, further on: an address in shared memory does not leave its bits.
DEV u64 further(u64 descriptor, int bytes) { return (descriptor >> 32) << 32 | (u32)((u32)descriptor + (u32)(bytes >> 4)); }
// ---- kernel
extern "C" __global__ void __launch_bounds__(128, 1) matmul_kernel(f16* out, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map, int m_tiles, int dim_m) {
  if (threadIdx.x == 0) { fetch_map(a_map); fetch_map(b_map); }
  SHARED_MEMORY(shared);
  const u32 shared_base = shared_address(shared);
  const int thread = threadIdx.x, warp = of_warp(thread >> 5), lane = thread & 31;
  const int row = warp * 16 + (lane >> 2), pair = (lane & 3) * 2;
  int block = blockIdx.x;
  const int rest = block / 4;
  const int n_tile = block - rest * 4;
  block = rest;
  const int m_tile = block;
  {
    const int m_start = m_tile * 64;
    const int m_last = least(m_start + 64, dim_m) - 1;
    const int n_start = n_tile * 64;
    const int n_last = least(n_start + 64, 256) - 1;
    const int m_row[2] = {(m_start + row), (m_start + (row + 8))};
    kernel_before_is_over();
    // for k in [0, k) carry s1[m, n]
    float s1[8][4];
    #pragma unroll
    for (int n = 0; n < 8; n++) {
      #pragma unroll
      for (int e = 0; e < 4; e++) {
        s1[n][e] = 0.f;
      }
    }
    const int k_low = 0;
    const int k_high = 456;
    const u32 a_1_tile_ring = shared_base + 0;
    const u32 b_1_tile_ring = shared_base + 16384;
    const u32 k_full = shared_base + 32768;
    if (thread == 0) {
      #pragma unroll
      for (int p = 0; p < 2; p++) {
        mbarrier_open(k_full + p * 8);
      }
      boxes_may_follow();
      #pragma unroll
      for (int p = 0; p < 2; p++) {
        const int k_start = k_low + p * 64;
        if (k_start < k_high) {
          mbarrier_expect(k_full + p * 8, 16384);
          copy_box(a_1_tile_ring + p * 8192, a_map, k_full + p * 8, k_start, m_start);
          copy_box(b_1_tile_ring + p * 8192, b_map, k_full + p * 8, n_start, k_start);
        }
      }
    }
    block_barrier();
    for (int k_tile = k_low, slot = 0, phase = 0; k_tile < k_high; k_tile += 64, phase ^= slot == 1, slot = slot == 1 ? 0 : slot + 1) {
      mbarrier_wait(k_full + slot * 8, phase);
      const int k_start = k_tile;
      const u32 a_1_tile = a_1_tile_ring + slot * 8192;
      const u32 b_1_tile = b_1_tile_ring + slot * 8192;
      // s1 = sum(s1~, mma(k, a_1, b_1))
      const u64 left_2 = apart(matrix_descriptor<128>(a_1_tile + 0 * 8192, 16, 1024));
      const u64 right = apart(matrix_descriptor<128>(b_1_tile, 8192, 1024));
      warpgroup_begin();
      #pragma unroll
      for (int kk = 0; kk < 4; kk++) {
        warpgroup_multiply_tiles<f16, 64, true>(s1, further(left_2, kk / 4 * 8192 + kk % 4 * 32), further(right, kk * 2048), true);
      }
      warpgroup_commit();
      warpgroup_wait<1>();  // for the trip before
      block_barrier();
      if (thread == 0) {
        const int k_start = k_tile + 64;
        if (k_tile > k_low && k_start < k_high) {
          const int before = slot == 0 ? 1 : slot - 1;
          mbarrier_expect(k_full + before * 8, 16384);
          copy_box(a_1_tile_ring + before * 8192, a_map, k_full + before * 8, k_start, m_start);
          copy_box(b_1_tile_ring + before * 8192, b_map, k_full + before * 8, n_start, k_start);
        }
      }
    }
    warpgroup_wait<0>();
    registers_settle(s1);
    if (thread == 0) {
      #pragma unroll
      for (int p = 0; p < 2; p++) {
        mbarrier_close(k_full + p * 8);
      }
    }
    block_barrier();
    next_kernel_may_begin();
    // out[m, n] = s1
    {
      #pragma unroll
      for (int h = 0; h < 2; h++) {
        f16* target = out + (n_start + ((i64)m_row[h] * 256));
        #pragma unroll
        for (int q = 0; q < 2; q++) {
          u32 w[4];
          #pragma unroll
          for (int x = 0; x < 4; x++) {
            w[x] = pack<f16>(s1[(4 * q + x)][2 * h], s1[(4 * q + x)][2 * h + 1]);
          }
          quad_transpose(w, lane);
          if (m_row[h] < dim_m) write_chunk(target + (4 * q + (lane & 3)) * 8, w);
        }
      }
    }
  }
}
