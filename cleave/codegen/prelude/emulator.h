// The GPU of emitted text, on the CPU: threads of a block are fibers, warps run in random order between barriers, warp collectives
// exchange through arrays, asynchronous copies land at random either at once or as late as their wait allows, shared memory starts as
// NaN. Out of bounds, misaligned and unordered accesses end the run with a message.
#include <ucontext.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint64_t u64;
typedef long long i64;
#define DEV static inline
#define __global__
#define __launch_bounds__(threads, blocks)
#define __restrict__
#define __shared__ static
#define SHARED_MEMORY(name) unsigned char* name = machine.shared.data()
#define NEG_INF (-INFINITY)
#define POS_INF INFINITY
#define NOT_A_NUMBER NAN
struct f16 { u16 bits; };
struct bf16 { u16 bits; };

struct Copy { u32 to; unsigned char data[16]; const void* from; int bytes, group; bool landed; };
struct Fiber { ucontext_t context; std::vector<char> stack; bool done, blocked; int generation, epoch, group; std::vector<Copy> copies; };
struct Warp { int arrived, generation; u32 exchange[2][32][8]; };
struct Cell { int write_epoch, read_epoch, flying; short writer; u32 readers; };
struct Range { const unsigned char *low, *high; bool writable; };
struct Machine {
  std::vector<Fiber> fibers; std::vector<Warp> warps; std::vector<unsigned char> shared; std::vector<Cell> cells; std::vector<Range> ranges;
  ucontext_t scheduler; int current, threads, arrived, generation; long progress; bool failed; char message[256]; std::mt19937_64 random;
};
static Machine machine;
struct Dim3 { int x; };
static Dim3 blockIdx;
#define threadIdx Dim3{machine.current}

static Fiber& self() { return machine.fibers[machine.current]; }
static void yield() { swapcontext(&self().context, &machine.scheduler); }
template <class... A> static void fail(const char* form, A... values) {
  if (!machine.failed) { machine.failed = true; snprintf(machine.message, sizeof machine.message, form, values...); }
  while (true) yield();
}

// ---- order
static void block_barrier() {
  Fiber& f = self();
  f.generation = machine.generation;
  if (++machine.arrived == machine.threads) { machine.arrived = 0; machine.generation++; machine.progress++; }
  else { f.blocked = true; while (f.generation == machine.generation) yield(); f.blocked = false; }
  f.epoch++;
}
static int meet() {  // all lanes of the warp arrive; returns the half of the exchange that they wrote
  Warp& w = machine.warps[machine.current / 32];
  const int mine = w.generation;
  if (++w.arrived == 32) { w.arrived = 0; w.generation++; machine.progress++; } else while (w.generation == mine) yield();
  return mine & 1;
}
static u32* slot() { Warp& w = machine.warps[machine.current / 32]; return w.exchange[w.generation & 1][machine.current % 32]; }
DEV void warp_barrier() { meet(); }

// ---- memory
static void check_global(const void* p, int bytes, bool writes) {
  const unsigned char* at = (const unsigned char*)p;
  for (const Range& r : machine.ranges)
    if (at >= r.low && at + bytes <= r.high) { if (writes && !r.writable) fail("thread %d writes an input", machine.current); return; }
  fail("thread %d of block %d %s %d bytes outside every buffer", machine.current, blockIdx.x, writes ? "writes" : "reads", bytes);
}
static void check_aligned(const void* p, int bytes) {
  if ((u64)p % bytes) fail("thread %d: address not aligned to %d bytes", machine.current, bytes);
}
static void shared_inside(u32 at, int bytes) {
  if ((u64)at + bytes > machine.shared.size() || at % std::min(bytes, 16)) fail("thread %d: shared address %u (%d bytes) outside or misaligned", machine.current, at, bytes);
}
static void note_read(u32 at, int bytes) {
  shared_inside(at, bytes);
  const int warp = machine.current / 32, epoch = self().epoch;
  for (u32 c = at / 2; c < (at + bytes) / 2; c++) {
    Cell& cell = machine.cells[c];
    if (cell.flying) fail("race: warp %d reads shared byte %u before its copy was waited for", warp, 2 * c);
    if (cell.write_epoch == epoch && cell.writer != warp) fail("race: warp %d reads shared byte %u, warp %d writes it, no barrier between", warp, 2 * c, cell.writer);
    if (cell.read_epoch != epoch) { cell.read_epoch = epoch; cell.readers = 0; }
    cell.readers |= 1u << warp;
  }
}
static void note_write(u32 at, int bytes) {
  shared_inside(at, bytes);
  const int warp = machine.current / 32, epoch = self().epoch;
  for (u32 c = at / 2; c < (at + bytes) / 2; c++) {
    Cell& cell = machine.cells[c];
    if (cell.flying) fail("race: warp %d writes shared byte %u while a copy to it is under way", warp, 2 * c);
    if (cell.write_epoch == epoch && cell.writer != warp) fail("race: warps %d and %d write shared byte %u, no barrier between", warp, cell.writer, 2 * c);
    if (cell.read_epoch == epoch && (cell.readers & ~(1u << warp))) fail("race: warp %d writes shared byte %u, another reads it, no barrier between", warp, 2 * c);
    cell.write_epoch = epoch; cell.writer = (short)warp;
  }
}
DEV u32 shared_address(const void* p) { return (u32)((const unsigned char*)p - machine.shared.data()); }

// ---- conversions
static float* half_table() {
  static float table[65536]; static bool made = false;
  if (!made) { for (int i = 0; i < 65536; i++) { u16 v = (u16)i; _Float16 h; memcpy(&h, &v, 2); table[i] = (float)h; } made = true; }
  return table;
}
static const float* const halves = half_table();
DEV float to_float(float x) { return x; }
DEV float to_float(f16 x) { return halves[x.bits]; }
DEV float to_float(bf16 x) { u32 v = (u32)x.bits << 16; float r; memcpy(&r, &v, 4); return r; }
template <class T> struct Convert;
template <> struct Convert<float> { static float of(float x) { return x; } };
template <> struct Convert<f16> {
  static f16 of(float x) { _Float16 h = (_Float16)x; f16 r; memcpy(&r.bits, &h, 2); return r; }
  static u32 two(float low, float high) { return of(low).bits | ((u32)of(high).bits << 16); }
};
template <> struct Convert<bf16> {
  static bf16 of(float x) {
    u32 v; memcpy(&v, &x, 4);
    if (x != x) return bf16{0x7fff};
    v += 0x7fff + ((v >> 16) & 1);
    return bf16{(u16)(v >> 16)};
  }
  static u32 two(float low, float high) { return of(low).bits | ((u32)of(high).bits << 16); }
};

// ---- arithmetic
DEV float exp2_of(float x) { return exp2f(x); }
DEV float log2_of(float x) { return log2f(x); }
DEV float recip_of(float x) { return 1.f / x; }
DEV float sqrt_of(float x) { return sqrtf(x); }
DEV float rsqrt_of(float x) { return 1.f / sqrtf(x); }
DEV float tanh_of(float x) { return tanhf(x); }
DEV float maximum(float a, float b) { return a != a || b != b ? NAN : fmaxf(a, b); }
DEV float minimum(float a, float b) { return a != a || b != b ? NAN : fminf(a, b); }
DEV float shuffle_xor(float x, int mask) {
  memcpy(slot(), &x, 4);
  const int half = meet(); float y;
  memcpy(&y, machine.warps[machine.current / 32].exchange[half][(machine.current % 32) ^ mask], 4);
  return y;
}

// ---- global memory
template <class T> DEV float read(const T* p, bool ok) { if (!ok) return 0.f; check_global(p, sizeof(T), false); return to_float(*p); }
template <class T> DEV int read_index(const T* p, bool ok) { if (!ok) return 0; check_global(p, sizeof(T), false); return (int)*p; }
DEV float read_fresh(const float* p, bool ok) { return read(p, ok); }
DEV void read_fresh_two(float& x, float& y, const float* p) { check_aligned(p, 8); check_global(p, 8, false); x = p[0]; y = p[1]; }
template <class T> DEV void write(T* p, float x) { check_global(p, sizeof(T), true); *p = Convert<T>::of(x); }
template <class T> DEV void write_two(T* p, float x, float y) { check_aligned(p, 2 * sizeof(T)); write(p, x); write(p + 1, y); }
template <class T> DEV u16 bits_at(const T* p) { check_global(p, 2, false); return p->bits; }

// ---- shared memory
template <class T> DEV float shared_read(u32 at) { note_read(at, 2); T x; memcpy(&x, &machine.shared[at], 2); return to_float(x); }
template <class T> DEV void shared_write(u32 at, float x) { note_write(at, 2); T v = Convert<T>::of(x); memcpy(&machine.shared[at], &v, 2); }
DEV float shared_read_float(u32 at) { note_read(at, 4); float x; memcpy(&x, &machine.shared[at], 4); return x; }
DEV void shared_write_float(u32 at, float x) { note_write(at, 4); memcpy(&machine.shared[at], &x, 4); }
DEV void shared_write_word(u32 at, u32 x) { note_write(at, 4); memcpy(&machine.shared[at], &x, 4); }
DEV void shared_write_chunk(u32 at, const u32 (&x)[4]) { note_write(at, 16); memcpy(&machine.shared[at], x, 16); }

// ---- asynchronous copies
static void fly(u32 at, int step) { for (u32 c = at / 2; c < at / 2 + 8; c++) machine.cells[c].flying += step; }
DEV void copy_chunk(u32 to, const void* from, int bytes) {
  note_write(to, 16);
  Copy copy = {to, {}, from, bytes, self().group, false};
  if (bytes) { check_aligned(from, 16); check_global(from, bytes, false); }
  if (machine.random() & 1) { memcpy(copy.data, from, bytes); memcpy(&machine.shared[to], copy.data, 16); copy.landed = true; }
  fly(to, 1);
  self().copies.push_back(copy);
}
DEV void copies_commit() { self().group++; }
template <int N> DEV void copies_wait() {
  static_assert(N >= 0, "at least zero groups stay open");
  Fiber& f = self();
  std::vector<Copy> open;
  for (Copy& c : f.copies) {
    if (c.group >= f.group - N) { open.push_back(c); continue; }
    fly(c.to, -1);
    note_write(c.to, 16);
    if (!c.landed) { memcpy(c.data, c.from, c.bytes); memcpy(&machine.shared[c.to], c.data, 16); }
  }
  f.copies.swap(open);
}

// ---- fragments
static void matrices(u32 (&r)[4], u32 address, bool transposed) {
  note_read(address, 16);
  slot()[0] = address;
  const int half = meet(), l = machine.current % 32;
  auto& rows = machine.warps[machine.current / 32].exchange[half];
  for (int i = 0; i < 4; i++) {
    if (!transposed) { memcpy(&r[i], &machine.shared[rows[i * 8 + l / 4][0] + (l % 4) * 4], 4); continue; }
    u16 low, high;
    memcpy(&low, &machine.shared[rows[i * 8 + (l % 4) * 2][0] + (l / 4) * 2], 2);
    memcpy(&high, &machine.shared[rows[i * 8 + (l % 4) * 2 + 1][0] + (l / 4) * 2], 2);
    r[i] = low | ((u32)high << 16);
  }
}
DEV void load_matrices(u32 (&r)[4], u32 address) { matrices(r, address, false); }
DEV void load_matrices_transposed(u32 (&r)[4], u32 address) { matrices(r, address, true); }
template <class T> DEV float part(u32 v, int k) { return to_float(T{(u16)(k ? v >> 16 : v)}); }
template <class T> DEV void multiply_add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  u32* mine = slot();
  memcpy(mine, a, 16);
  mine[4] = b0; mine[5] = b1;
  const int half = meet(), l = machine.current % 32, g = l / 4, t = l % 4;
  auto& x = machine.warps[machine.current / 32].exchange[half];
  for (int e = 0; e < 4; e++) {
    const int m = g + (e >> 1) * 8, n = t * 2 + (e & 1);
    float sum = d[e];
    for (int k = 0; k < 16; k++)
      sum += part<T>(x[(m % 8) * 4 + (k % 8) / 2][(m >= 8) + 2 * (k >= 8)], k & 1) * part<T>(x[n * 4 + (k % 8) / 2][4 + (k >= 8)], k & 1);
    d[e] = sum;
  }
}

// ---- blocks that wait for each other: blocks run one after the other, in random order
DEV void publish() {}
DEV int arrive(int* counter) { check_global(counter, 4, true); return (*counter)++; }
DEV void reset(int* counter) { *counter = 0; }

// ---- running
static void run_block(void (*entry)(int)) {
  Machine& m = machine;
  const int warps = m.threads / 32;
  std::fill(m.shared.begin(), m.shared.end(), 0xff);
  std::fill(m.cells.begin(), m.cells.end(), Cell{-1, -1, 0, -1, 0});
  m.arrived = m.generation = 0;
  for (Warp& w : m.warps) w.arrived = w.generation = 0;
  for (int i = 0; i < m.threads; i++) {
    Fiber& f = m.fibers[i];
    f.stack.resize(1 << 17); f.done = f.blocked = false; f.generation = f.epoch = f.group = 0; f.copies.clear();
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.data(); f.context.uc_stack.ss_size = f.stack.size(); f.context.uc_link = &m.scheduler;
    makecontext(&f.context, (void (*)())entry, 1, i);
  }
  long seen = -1, idle = 0;
  while (!m.failed) {
    std::vector<int> ready;
    bool left = false;
    for (int w = 0; w < warps; w++) {
      bool can = false;
      for (int i = 32 * w; i < 32 * w + 32; i++) { const Fiber& f = m.fibers[i]; left |= !f.done; can |= !f.done && !(f.blocked && f.generation == m.generation); }
      if (can) ready.push_back(w);
    }
    if (!left) return;
    if (ready.empty() || idle > 64 * warps) {
      m.failed = true; snprintf(m.message, sizeof m.message, "deadlock in block %d: not every thread reaches the same barrier", blockIdx.x); return;
    }
    const int w = ready[m.random() % ready.size()];
    const int passes = m.random() % 3 ? 1 + (int)(m.random() % 64) : 1 << 20;  // a warp may run far ahead
    for (int pass = 0; pass < passes && !m.failed; pass++) {
      bool ran = false;
      const long before = m.progress;
      for (int i = 32 * w; i < 32 * w + 32 && !m.failed; i++) {
        Fiber& f = m.fibers[i];
        if (f.done || (f.blocked && f.generation == m.generation)) continue;
        ran = true; m.current = i;
        swapcontext(&m.scheduler, &f.context);
        if (f.done) m.progress++;
      }
      if (!ran || m.progress == before) break;
    }
    idle = m.progress == seen ? idle + 1 : 0;
    seen = m.progress;
  }
}
static void prepare(int threads, int bytes, const u64* ranges, int count, u64 seed) {
  Machine& m = machine;
  m.threads = threads; m.failed = false; m.progress = 0;
  m.random.seed(seed);
  m.fibers.resize(threads); m.warps.resize(threads / 32);
  m.shared.resize((bytes + 127) / 128 * 128 + 128); m.cells.resize(m.shared.size() / 2);
  m.ranges.clear();
  for (int i = 0; i < count; i++)
    m.ranges.push_back({(const unsigned char*)ranges[3 * i], (const unsigned char*)ranges[3 * i + 1], ranges[3 * i + 2] != 0});
}
static void run_blocks(int blocks, void (*entry)(int)) {
  std::vector<int> order(blocks);
  for (int i = 0; i < blocks; i++) order[i] = i;
  std::shuffle(order.begin(), order.end(), machine.random);
  for (int i = 0; i < blocks && !machine.failed; i++) { blockIdx.x = order[i]; run_block(entry); }
}
