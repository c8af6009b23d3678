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
