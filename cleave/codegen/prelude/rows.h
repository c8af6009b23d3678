// ---- vectors of rows
DEV void load_words(u32* w, const void* p, bool ok) {
  memset(w, 0, 16);
  if (ok) { check_aligned(p, 16); check_cached(p, 16); memcpy(w, p, 16); } }
DEV void load_words_shared(u32* w, const void* p, bool ok) { load_words(w, p, ok); }
DEV void load_words_fresh(u32* w, const void* p, bool ok) {
  memset(w, 0, 16);
  if (ok) { check_aligned(p, 16); check_global(p, 16, false); memcpy(w, p, 16); } }
DEV float float_of(u32 w) { float x; memcpy(&x, &w, 4); return x; }
DEV u32 word_of(float x) { u32 w; memcpy(&w, &x, 4); return w; }
template <class T> DEV void split_word(float& x, float& y, u32 w, T) { x = to_float(T{(u16)w}); y = to_float(T{(u16)(w >> 16)}); }
