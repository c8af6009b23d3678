// ---- vectors of rows. Nobody else reads a row, so it need not stay in the first-level cache; what rows share may.
// No branch: several of them go out together.
#define CLEAVE_LOAD_WORDS(name, how, when) \
  DEV void name(u32* w, const void* p, bool ok) { \
    asm when("{.reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;" \
      " @p ld.global" how ".v4.u32 {%0, %1, %2, %3}, [%4];}" \
      : "=&r"(w[0]), "=&r"(w[1]), "=&r"(w[2]), "=&r"(w[3]) : "l"(p), "r"((int)ok)); }
CLEAVE_LOAD_WORDS(load_words, ".nc.L1::no_allocate", )
CLEAVE_LOAD_WORDS(load_words_shared, ".nc", )
CLEAVE_LOAD_WORDS(load_words_fresh, ".cg", volatile)
DEV float float_of(u32 w) { return __int_as_float((int)w); }
DEV u32 word_of(float x) { return (u32)__float_as_int(x); }
DEV void split_word(float& x, float& y, u32 w, f16) {
  asm("{.reg .b16 a, b; mov.b32 {a, b}, %2; cvt.f32.f16 %0, a; cvt.f32.f16 %1, b;}" : "=f"(x), "=f"(y) : "r"(w)); }
DEV void split_word(float& x, float& y, u32 w, bf16) { x = float_of(w << 16); y = float_of(w & 0xffff0000u); }
