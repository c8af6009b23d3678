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
// ---- kernel
