// ---- elements of tables on their way to shared memory, where rows of tiles look up where they are; 0 where there is none
DEV void copy_word(u32 to, const int* from, bool ok) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(to), "l"(from), "r"(ok ? 4 : 0) : "memory"); }
DEV int shared_read_int(u32 address) {
  int x; asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(address) : "memory"); return x; }
DEV int votes(bool yes) { return __popc(__ballot_sync(0xffffffffu, yes)); }  // threads of the warp
