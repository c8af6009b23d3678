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
