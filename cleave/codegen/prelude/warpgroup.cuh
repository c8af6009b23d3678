
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
