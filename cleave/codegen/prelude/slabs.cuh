
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
