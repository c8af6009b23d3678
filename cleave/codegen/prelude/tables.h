// ---- elements of tables on their way to shared memory
void copy_word(u32 to, const int* from, bool ok);
DEV int shared_read_int(u32 at) { note_read(at, 4); int x; memcpy(&x, shared_bytes() + at, 4); return x; }
DEV int votes(bool yes) {
  exchange()[0] = yes;
  const int half = meet();
  int count = 0;
  for (int lane = 0; lane < 32; lane++) count += exchange_of(half, lane)[0];
  return count;
}
