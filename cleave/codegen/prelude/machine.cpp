// The machine under emulator.h: threads of a block are fibers, warps run in random order between barriers, warp collectives exchange
// through arrays, asynchronous copies land at random either at once or as late as their wait allows, shared memory starts as NaN.
// Every two bytes of shared memory remember who touched them since the last barrier, of the block, of a team of warps or of the warp:
// an access that no barrier orders is a race. What a block writes for others has to be ordered before it arrives. The blocks of a
// cluster are machines that take turns at random; what one sends to another counts at an mbarrier there. Boxes of the copy
// engine land whole, in any order, while nobody has waited for their phase; a fence orders ordinary writes before them.
#include <ucontext.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <random>
#include <vector>
typedef uint32_t u32;
typedef uint16_t u16;
typedef uint64_t u64;
typedef int64_t i64;
struct Dim3 { int x; };
Dim3 blockIdx, gridDim;

struct View { int thread, epoch, team_epoch, warp_epoch; bool known; };  // what a thread had behind it when it told another block
struct Copy { u32 to; unsigned char data[16]; const void* from; int bytes, group, size; bool landed; };
struct Fiber {
  ucontext_t context; std::vector<char> stack; bool done, blocked; int generation, epoch, team_epoch, warp_epoch, group; std::vector<Copy> copies;
  int wrote;  // epoch of the last write to global memory
  int all_epoch;  // barriers of all warps that compute, where others only load
  int cluster_epoch, arrived_in;  // generation of the barrier of the cluster at which it has arrived and not waited; -1
  long fence;            // when it last ordered its writes before boxes
  bool waiting;          // for a phase of an mbarrier
  std::vector<int> seen; // phases of each mbarrier that it has waited for
  std::vector<std::vector<View>> heard; // of each warp of each block of the cluster, at mbarriers that it has waited for
  bool after;            // it has waited for the kernel before
  std::vector<u32> reading; std::deque<std::vector<u32>> multiplies;  // cells that the tensor cores read for it, by group
};
struct Warp { int arrived, generation; u32 exchange[2][32][8]; };
struct Team { int arrived, generation, threads; };
struct Turn { int passed, waiting, generation; };  // of a team: threads that passed theirs to it, that wait for it
struct Cell {
  int write_epoch, read_epoch, flying; short writer; u32 readers;
  int write_team_epoch, read_team_epoch;  // within the team that wrote, that read last
  int write_all_epoch, read_all_epoch;    // among the warps that compute
  int write_warp_epoch, read_warp_epoch; short write_thread, reader_warp; u32 lanes;  // within the warp that wrote, that read
  int touch_cluster_epoch;  // barriers of the cluster before the last access by a thread of this block
  long written;             // when an ordinary write came last
  int box, phase;           // the mbarrier and phase of the box that wrote last, -1: none
  bool mbarrier;
  int multiplied;           // reads of matmuls that nobody has waited for
};
struct Told { int rank, phase; View view; };
struct Mbarrier {
  u32 at; int arrivals, pending, phase; long bytes, opened; int opened_cluster_epoch; short opener; bool live;
  std::vector<std::pair<u32, u32>> boxes; std::vector<Told> told;
};
struct Flight { u32 to; int mbarrier; u64 map[16]; int corner[5]; long bytes; };
enum Kind : u64 { INPUT, OUTPUT, SHARED_BY_BLOCKS };
struct Range { const unsigned char *low, *high; Kind kind; };
struct Machine {
  std::vector<Fiber> fibers; std::vector<Warp> warps; std::vector<Team> teams; std::vector<Turn> turns; std::vector<unsigned char> shared; std::vector<Cell> cells; std::vector<Range> ranges;
  ucontext_t scheduler; int current, threads, arrived, generation; long progress;
  int arrival;        // epoch in which a thread of this block told the others that its work is done; -1 before
  int team_warps;     // warps that wait together at a named barrier
  int all_warps; Team all;  // those that compute, where others only load
  int block, rank;
  long seen, idle;
  long clock; std::deque<Mbarrier> mbarriers; std::vector<Flight> flights;
};
static std::mt19937_64 chance;
static std::vector<Machine> machines;  // the blocks of a cluster
static Machine* at_work;
#define machine (*at_work)
static int cluster_arrived, cluster_generation;
static Fiber& self() { return machine.fibers[machine.current]; }
static void yield() { swapcontext(&self().context, &machine.scheduler); }
static bool failed;
static char message[256];
template <class... A> static void fail(const char* form, A... values) {
  if (!failed) { failed = true; snprintf(message, sizeof message, form, values...); }
  while (true) yield();
}

// ---- order
void block_barrier() {
  Fiber& f = self();
  f.generation = machine.generation;
  if (++machine.arrived == machine.threads) { machine.arrived = 0; machine.generation++; machine.progress++; }
  else { f.blocked = true; while (f.generation == machine.generation) yield(); f.blocked = false; }
  f.epoch++;
}
// Named barriers: the threads of a team meet, others run on. Those who wait at one wait for the same number of threads.
static const int ALL = 14;  // the number of the barrier at which all meet who compute (team.py)
void team_barrier_of(int team, int threads) {
  Fiber& f = self();
  const bool all = team == ALL;
  (all ? machine.all_warps : machine.team_warps) = threads / 32;
  if (machine.current / threads != (all ? 0 : team)) fail("thread %d waits at the barrier of team %d", machine.current, team);
  Team& t = all ? machine.all : machine.teams[team];
  const int mine = t.generation;
  if (t.arrived && t.threads != threads) fail("thread %d waits at a barrier for %d threads, others there for %d", machine.current, threads, t.threads);
  t.threads = threads;
  if (++t.arrived == threads) { t.arrived = 0; t.generation++; machine.progress++; } else while (t.generation == mine) yield();
  f.team_epoch++; f.warp_epoch++; f.all_epoch += all;
}
// Turns order no memory. Half of the threads pass theirs, half wait.
static void take_turn(Turn& t, int threads) {
  if (t.passed + t.waiting == threads) { t.passed = t.waiting = 0; t.generation++; machine.progress++; }
}
void turn_pass_of(int team, int threads) {
  Turn& t = machine.turns[team];
  if (machine.current / (threads / 2) == team) fail("thread %d passes its turn to its own team", machine.current);
  if (++t.passed > threads / 2) fail("thread %d passes a turn to team %d, which has not taken the one before", machine.current, team);
  take_turn(t, threads);
  if (chance() & 1) yield();
}
void turn_wait_of(int team, int threads) {
  Turn& t = machine.turns[team];
  if (machine.current / (threads / 2) != team) fail("thread %d waits for the turn of team %d", machine.current, team);
  const int mine = t.generation;
  t.waiting++;
  take_turn(t, threads);
  while (t.generation == mine) yield();
}
// Warps that a barrier of all who compute orders, if this one is among them.
static u32 warps_of_all() { return machine.current / 32 < machine.all_warps ? (u32)((1ull << machine.all_warps) - 1) : 0; }
static u32 warps_of_team() {
  const int size = machine.team_warps;
  return (size == 32 ? ~0u : (1u << size) - 1) << machine.current / 32 / size * size;
}
int meet() {
  Warp& w = machine.warps[machine.current / 32];
  const int mine = w.generation;
  if (++w.arrived == 32) { w.arrived = 0; w.generation++; machine.progress++; } else while (w.generation == mine) yield();
  return mine & 1;
}
u32* exchange() { Warp& w = machine.warps[machine.current / 32]; return w.exchange[w.generation & 1][machine.current % 32]; }
u32* exchange_of(int half, int lane) { return machine.warps[machine.current / 32].exchange[half][lane]; }
void warp_barrier() { meet(); self().warp_epoch++; }
int thread_index() { return machine.current; }
unsigned char* shared_bytes() { return machine.shared.data(); }

// ---- memory
static const Range* range_of(const void* p, int bytes, const char* what) {
  const unsigned char* at = (const unsigned char*)p;
  for (const Range& r : machine.ranges) if (at >= r.low && at + bytes <= r.high) return &r;
  fail("thread %d of block %d %s %d bytes outside every buffer", machine.current, blockIdx.x, what, bytes);
  return nullptr;
}
void kernel_before_is_over() { self().after = true; }
static void check_after() { if (!self().after) fail("thread %d uses memory before the kernel before is over", machine.current); }
void check_global(const void* p, int bytes, bool writes) {
  Fiber& f = self();
  const Range* r = range_of(p, bytes, writes ? "writes" : "reads");
  check_after();
  if (!writes) {
    if (r->kind == SHARED_BY_BLOCKS && machine.arrival == f.epoch) fail("thread %d reads what other blocks wrote while its own arrives, no barrier between", machine.current);
    return;
  }
  if (r->kind == INPUT) fail("thread %d writes an input", machine.current);
  if (machine.arrival >= 0 && machine.arrival == f.epoch) fail("thread %d writes while its block arrives, no barrier between", machine.current);
  f.wrote = f.epoch;
}
void check_cached(const void* p, int bytes) {
  check_after();
  if (range_of(p, bytes, "reads")->kind == SHARED_BY_BLOCKS) fail("thread %d reads what other blocks write through a cache that may be stale", machine.current);
}

// ---- blocks that wait for each other: they run one after the other, in random order, so what a GPU might see too early is refused
int arrive(int* counter) {
  check_after();
  Fiber& f = self();
  range_of(counter, 4, "counts in");
  for (int i = 0; i < machine.threads; i++)
    if (i != machine.current && machine.fibers[i].wrote == f.epoch) fail("thread %d arrives while thread %d writes, no barrier between", machine.current, i);
  machine.arrival = f.epoch;
  return (*counter)++;
}
void wait_for(const int* counter, int total) { check_after(); range_of(counter, 4, "waits at"); while (*counter < total) yield(); }
void reset(int* counter) { check_after(); range_of(counter, 4, "resets"); *counter = 0; }
void check_aligned(const void* p, int bytes) {
  if ((u64)p % bytes) fail("thread %d: address not aligned to %d bytes", machine.current, bytes);
}
static void shared_inside(u32 at, int bytes) {
  if ((u64)at + bytes > machine.shared.size() || at % std::min(bytes, 16)) fail("thread %d: shared address %u (%d bytes) outside or misaligned", machine.current, at, bytes);
}
static bool waited_for(const Fiber& f, const Cell& cell) {
  return cell.box < 0 || (cell.box < (int)f.seen.size() && f.seen[cell.box] > cell.phase);
}
// Warps whose last write a barrier of the team, or of all who compute, has put behind this thread.
static u32 writers_behind(const Cell& cell, u32 team, u32 all) {
  const Fiber& f = self();
  return (cell.write_team_epoch != f.team_epoch ? team : 0) | (cell.write_all_epoch != f.all_epoch ? all : 0);
}
static void check_read(u32 at, int bytes) {
  shared_inside(at, bytes);
  const Fiber& f = self();
  const int warp = machine.current / 32, epoch = f.epoch;
  const u32 team = warps_of_team(), all = warps_of_all();
  for (u32 c = at / 2; c < (at + bytes) / 2; c++) {
    Cell& cell = machine.cells[c];
    cell.touch_cluster_epoch = f.cluster_epoch;
    const u32 ordered = writers_behind(cell, team, all);
    if (cell.flying || !waited_for(f, cell)) fail("race: warp %d reads shared byte %u before its copy was waited for", warp, 2 * c);
    if (cell.write_epoch == epoch) {
      if (cell.writer != warp && !(ordered >> cell.writer & 1)) fail("race: warp %d reads shared byte %u, warp %d writes it, no barrier between", warp, 2 * c, cell.writer);
      if (cell.writer == warp && cell.write_thread != machine.current && cell.write_warp_epoch == f.warp_epoch)
        fail("race: thread %d reads shared byte %u, thread %d writes it, no barrier between, in one warp", machine.current, 2 * c, cell.write_thread);
    }
    if (cell.read_epoch != epoch) { cell.read_epoch = epoch; cell.readers = cell.lanes = 0; }
    if (cell.readers & team && cell.read_team_epoch != f.team_epoch) cell.readers &= ~team;
    if (cell.read_all_epoch != f.all_epoch) cell.readers &= ~all;
    cell.read_team_epoch = f.team_epoch; cell.read_all_epoch = f.all_epoch;
    cell.readers |= 1u << warp;
    if (cell.reader_warp != warp || cell.read_warp_epoch != f.warp_epoch) { cell.reader_warp = warp; cell.read_warp_epoch = f.warp_epoch; cell.lanes = 0; }
    cell.lanes |= 1u << machine.current % 32;
  }
}
static void check_write(u32 at, int bytes, bool box) {
  shared_inside(at, bytes);
  const Fiber& f = self();
  const int warp = machine.current / 32, epoch = f.epoch;
  const u32 team = warps_of_team(), all = warps_of_all();
  for (u32 c = at / 2; c < (at + bytes) / 2; c++) {
    Cell& cell = machine.cells[c];
    const u32 ordered = writers_behind(cell, team, all);
    if (cell.multiplied) fail("race: warp %d writes shared byte %u while a matmul reads it", warp, 2 * c);
    if (cell.flying || !waited_for(f, cell)) fail("race: warp %d writes shared byte %u while a copy to it is under way", warp, 2 * c);
    if (box && cell.written > std::max(f.fence, machine.fibers[cell.write_thread < 0 ? machine.current : cell.write_thread].fence))
      fail("race: thread %d asks for a box over shared byte %u, no fence after ordinary writes", machine.current, 2 * c);
    if (cell.write_epoch == epoch) {
      if (cell.writer != warp && !(ordered >> cell.writer & 1)) fail("race: warps %d and %d write shared byte %u, no barrier between", warp, cell.writer, 2 * c);
      if (cell.writer == warp && cell.write_thread != machine.current && cell.write_warp_epoch == f.warp_epoch)
        fail("race: threads %d and %d write shared byte %u, no barrier between, in one warp", machine.current, cell.write_thread, 2 * c);
    }
    if (cell.read_epoch == epoch) {
      if (cell.readers & ~(1u << warp) & (cell.read_team_epoch == f.team_epoch ? ~0u : ~team) & (cell.read_all_epoch == f.all_epoch ? ~0u : ~all)) fail("race: warp %d writes shared byte %u, another reads it, no barrier between", warp, 2 * c);
      if (cell.reader_warp == warp && cell.read_warp_epoch == f.warp_epoch && (cell.lanes & ~(1u << machine.current % 32)))
        fail("race: thread %d writes shared byte %u, others of its warp read it, no barrier between, in one warp", machine.current, 2 * c);
    }
    if (box) { cell.write_epoch = -1; continue; }
    cell.written = machine.clock; cell.box = -1; cell.touch_cluster_epoch = f.cluster_epoch;
    cell.write_epoch = epoch; cell.writer = (short)warp; cell.write_team_epoch = f.team_epoch; cell.write_all_epoch = f.all_epoch;
    cell.write_thread = (short)machine.current; cell.write_warp_epoch = f.warp_epoch;
  }
}
static void refuse_mbarrier(u32 at, int bytes) {
  for (u32 c = at / 2; c < (at + bytes) / 2; c++) if (machine.cells[c].mbarrier) fail("thread %d touches shared byte %u, part of an mbarrier", machine.current, 2 * c);
}
void note_read(u32 at, int bytes) { check_read(at, bytes); refuse_mbarrier(at, bytes); }
void note_write(u32 at, int bytes) { machine.clock++; check_write(at, bytes, false); refuse_mbarrier(at, bytes); }
// ---- blocks of a cluster
void cluster_arrive() {
  Fiber& f = self();
  if (f.arrived_in >= 0) fail("thread %d arrives twice at the barrier of the cluster", machine.current);
  f.arrived_in = cluster_generation;
  if (++cluster_arrived == machine.threads * (int)machines.size()) { cluster_arrived = 0; cluster_generation++; machine.progress++; }
}
void cluster_wait() {
  Fiber& f = self();
  if (f.arrived_in < 0) fail("thread %d waits at the barrier of the cluster before it arrives", machine.current);
  while (cluster_generation == f.arrived_in) yield();
  f.arrived_in = -1;
  f.cluster_epoch++;
}
void cluster_barrier() { block_barrier(); cluster_arrive(); cluster_wait(); }
static const int RANK_STEP = 1 << 20;
u32 cluster_address(u32 address, int rank) {
  if (rank < 0 || rank >= (int)machines.size()) fail("thread %d reaches for block %d of a cluster of %d", machine.current, rank, (int)machines.size());
  return address + (u32)(rank + 1) * RANK_STEP;  // an address of this block's own memory is one of the cluster, as it is
}
static int rank_of(u32 address) { return (int)(address / RANK_STEP) - 1; }
// ---- asynchronous copies
static void fly(u32 at, int size, int step) { for (u32 c = at / 2; c < (at + size) / 2; c++) machine.cells[c].flying += step; }
static void copy(u32 to, const void* from, int bytes, int size) {
  note_write(to, size);
  Copy copy = {to, {}, from, bytes, self().group, size, false};
  if (bytes) { check_aligned(from, size); check_global(from, bytes, false); }
  if (chance() & 1) { memcpy(copy.data, from, bytes); memcpy(&machine.shared[to], copy.data, size); copy.landed = true; }
  fly(to, size, 1);
  self().copies.push_back(copy);
}
void copy_chunk(u32 to, const void* from, int bytes) { copy(to, from, bytes, 16); }
void copy_word(u32 to, const int* from, bool ok) { copy(to, from, ok ? 4 : 0, 4); }
void copies_commit() { self().group++; }
void copies_wait_for(int left) {
  Fiber& f = self();
  std::vector<Copy> open;
  for (Copy& c : f.copies) {
    if (c.group >= f.group - left) { open.push_back(c); continue; }
    fly(c.to, c.size, -1);
    note_write(c.to, c.size);
    if (!c.landed) { memcpy(c.data, c.from, c.bytes); memcpy(&machine.shared[c.to], c.data, c.size); }
  }
  f.copies.swap(open);
}

// ---- boxes: an mbarrier's phase is over once its thread has arrived and all bytes that it expects are there
static int mbarrier_at(u32 at) {
  for (int i = (int)machine.mbarriers.size(); i-- > 0;) if (machine.mbarriers[i].live && machine.mbarriers[i].at == at) return i;
  fail("thread %d: no mbarrier at shared byte %u", machine.current, at);
  return -1;
}
static void set_mbarrier(u32 at, bool is) { for (u32 c = at / 2; c < at / 2 + 4; c++) machine.cells[c].mbarrier = is; }
void mbarrier_open(u32 at, int arrivals) {
  note_write(at, 8);
  set_mbarrier(at, true);
  machine.mbarriers.push_back({at, arrivals, arrivals, 0, 0, machine.clock, self().cluster_epoch, (short)machine.current, true, {}, {}});
}
void mbarrier_close(u32 at) {
  const int i = mbarrier_at(at);
  machine.clock++;
  check_write(at, 8, false);
  set_mbarrier(at, false);
  machine.mbarriers[i].live = false;
  const Fiber& f = self();
  for (const auto& [low, high] : machine.mbarriers[i].boxes)  // what landed is ordinary memory from here, after a barrier also for others
    for (u32 c = low / 2; c < high / 2; c++) {
      Cell& cell = machine.cells[c];
      if (cell.box != i) continue;
      if (!waited_for(f, cell)) fail("thread %d closes the mbarrier at shared byte %u before its last phase was waited for", machine.current, at);
      cell.box = -1; cell.write_epoch = f.epoch; cell.writer = (short)(machine.current / 32); cell.write_team_epoch = f.team_epoch; cell.write_all_epoch = f.all_epoch;
      cell.write_thread = (short)machine.current; cell.write_warp_epoch = f.warp_epoch;
    }
}
void boxes_may_follow() { self().fence = ++machine.clock; }
void tensor_cores_may_read() { self().fence = ++machine.clock; }
static void advance(Mbarrier& b) { if (b.pending == 0 && b.bytes == 0) { b.pending = b.arrivals; b.phase++; machine.progress++; } }
void mbarrier_expect(u32 at, int bytes) {
  Mbarrier& b = machine.mbarriers[mbarrier_at(at)];
  check_read(at, 8);
  if (b.pending == 0) fail("thread %d arrives twice in one phase of the mbarrier at shared byte %u", machine.current, at);
  b.bytes += bytes; b.pending--;
  advance(b);
}
void mbarrier_wait(u32 at, int parity) {
  const int i = mbarrier_at(at);
  check_read(at, 8);
  self().waiting = true;
  while ((machine.mbarriers[i].phase & 1) == parity) yield();
  Fiber& f = self();
  f.waiting = false;
  if ((int)f.seen.size() <= i) f.seen.resize(i + 1, 0);
  f.seen[i] = machine.mbarriers[i].phase;
}
// Between blocks of a cluster: a thread tells the thread that waits at another block's mbarrier what it has behind it.
static Machine& neighbour(int rank, const char* what) {
  if (rank < 0 || rank >= (int)machines.size()) fail("thread %d %s block %d of a cluster of %d", machine.current, what, rank, (int)machines.size());
  Machine& other = machines[rank];
  // its memory is there until its last thread ends: those that only load go before the others
  if (std::all_of(other.fibers.begin(), other.fibers.end(), [](const Fiber& f) { return f.done; })) fail("thread %d %s block %d, which has ended", machine.current, what, other.block);
  return other;
}
static int mbarrier_of(const Machine& other, u32 at) {
  int i = (int)other.mbarriers.size() - 1;
  while (i >= 0 && !(other.mbarriers[i].live && other.mbarriers[i].at == at)) i--;
  if (i < 0) fail("thread %d: no mbarrier at shared byte %u of block %d", machine.current, at, other.block);
  const Mbarrier& b = other.mbarriers[i];
  if (&other != &machine && b.opened_cluster_epoch >= self().cluster_epoch) fail("thread %d uses an mbarrier of block %d, no barrier of the cluster after it was opened", machine.current, other.block);
  if (b.opened > std::max(other.fibers[b.opener].fence, &other == &machine ? self().fence : 0)) fail("thread %d uses an mbarrier of block %d, no fence after it was opened", machine.current, other.block);
  return i;
}
void mbarrier_arrive_at(u32 address) {
  Machine& other = neighbour(rank_of(address), "arrives at");
  Mbarrier& b = other.mbarriers[mbarrier_of(other, address % RANK_STEP)];
  const Fiber& f = self();
  if (b.pending == 0) fail("thread %d arrives at an mbarrier of block %d that has all arrivals of its phase", machine.current, other.block);
  b.told.push_back({machine.rank, b.phase, {machine.current, f.epoch, f.team_epoch, f.warp_epoch, true}});
  b.pending--;
  advance(b);
}
void mbarrier_arrive(u32 at) {
  Mbarrier& b = machine.mbarriers[mbarrier_at(at)];
  const Fiber& f = self();
  check_read(at, 8);
  if (b.pending == 0) fail("thread %d arrives at the mbarrier at shared byte %u, which has all arrivals of its phase", machine.current, at);
  b.told.push_back({machine.rank, b.phase, {machine.current, f.epoch, f.team_epoch, f.warp_epoch, true}});
  b.pending--;
  advance(b);
  if (chance() & 1) yield();  // whoever waits there may go on before this warp does
}
void mbarrier_tell(u32 at, u32 place, int x) {
  shared_inside(place, 4);
  memcpy(&machine.shared[place], &x, 4);
  mbarrier_arrive(at);
}
int mbarrier_number(u32 at, int parity, u32 place) {
  mbarrier_wait(at, parity);
  shared_inside(place, 4);
  int x;
  memcpy(&x, &machine.shared[place], 4);
  return x;
}
int take(int* counter) { range_of(counter, 4, "counts in"); return (*counter)++; }
void mbarrier_wait_for_all(u32 at, int parity) {
  mbarrier_wait(at, parity);
  const Mbarrier& b = machine.mbarriers[mbarrier_at(at)];
  Fiber& f = self();
  f.heard.resize(machines.size());
  for (const Told& t : b.told) {
    if (t.phase >= b.phase) continue;
    f.heard[t.rank].resize(machine.warps.size(), {0, 0, 0, 0, false});
    View& view = f.heard[t.rank][t.view.thread / 32];
    if (!view.known || view.warp_epoch <= t.view.warp_epoch) view = t.view;
  }
}
// What lands counts at the mbarrier of its block, and may be read by who has waited for its phase. It may come at any time before.
void send_to_cluster(u32 to, u32 mbarrier, const float* values, int count) {
  if (rank_of(to) != rank_of(mbarrier)) fail("thread %d sends to block %d, and counts in block %d", machine.current, rank_of(to), rank_of(mbarrier));
  Machine& other = neighbour(rank_of(to), "sends to");
  const u32 at = to % RANK_STEP;
  const int i = mbarrier_of(other, mbarrier % RANK_STEP);
  Mbarrier& b = other.mbarriers[i];
  shared_inside(at, 4 * count);
  for (u32 c = at / 2; c < at / 2 + 2 * count; c++) {
    Cell& cell = other.cells[c];
    if (cell.box == i && cell.phase == b.phase) fail("thread %d sends to shared byte %u of block %d, where something was sent already", machine.current, 2 * c, other.block);
    if (cell.mbarrier || cell.flying || cell.write_epoch >= 0 || cell.read_epoch >= 0) fail("race: thread %d sends to shared byte %u of block %d, which has used it", machine.current, 2 * c, other.block);
    cell.box = i; cell.phase = b.phase; cell.written = 0;
  }
  memcpy(&other.shared[at], values, 4 * count);
  b.bytes -= 4 * count;
  advance(b);
  if (chance() % 8 == 0) yield();
}
// Whether what warps of a block did to a place is behind those that told this thread, each for itself, or a barrier of the block.
static void check_told(Machine& other, const std::vector<View>& told, u32 at, int bytes) {
  const Fiber& f = self();
  int epoch = 0, asker = 0;
  for (const View& v : told) if (v.known) epoch = std::max(epoch, v.epoch), asker = v.thread;
  for (u32 c = at / 2; c < (at + bytes) / 2; c++) {
    Cell& cell = other.cells[c];
    const char* why = nullptr;
    bool waited = cell.box < 0;
    for (const View& v : told) waited |= v.known && waited_for(other.fibers[v.thread], cell);
    if (cell.flying || !waited) why = "a copy to it is under way";
    else if (cell.multiplied) why = "a matmul reads it";
    else if (cell.write_epoch > epoch || cell.read_epoch > epoch) why = "it was used after that block told";
    else if (cell.write_epoch == epoch && !(told[cell.writer].known && told[cell.writer].warp_epoch > cell.write_warp_epoch)) why = "a warp that has told nothing since writes it";
    else if (cell.read_epoch == epoch)
      for (int w = 0; w < (int)told.size() && why == nullptr; w++)
        if (cell.readers >> w & 1 && (!told[w].known || (cell.reader_warp == w && told[w].warp_epoch <= cell.read_warp_epoch))) why = "a warp that has told nothing since reads it";
    const long fence = &other == &machine ? f.fence : 0;
    if (why == nullptr && cell.written > std::max(fence, other.fibers[cell.write_thread < 0 ? asker : cell.write_thread].fence)) why = "no fence after ordinary writes";
    if (why != nullptr) fail("race: thread %d asks for a box over shared byte %u of block %d: %s", machine.current, 2 * c, other.block, why);
    cell.write_epoch = cell.read_epoch = -1;  // all that is behind the box, and before whoever has waited for it
    cell.readers = cell.lanes = 0;
  }
}
// Whether what threads of another block did to a place is behind the thread that told this one for all of them, or a barrier of the cluster.
static void check_behind(Machine& other, const View& view, u32 at, int bytes) {
  const Fiber& f = self();
  const int warp = view.thread / 32, size = other.team_warps;
  const u32 mine = 1u << warp, team = (size == 32 ? ~0u : (1u << size) - 1) << warp / size * size;
  for (u32 c = at / 2; c < (at + bytes) / 2; c++) {
    Cell& cell = other.cells[c];
    const char* why = nullptr;
    if (cell.flying) why = "a copy to it is under way";
    else if (!view.known) why = cell.touch_cluster_epoch >= f.cluster_epoch ? "it was used after the last barrier of the cluster" : nullptr;
    else if (!waited_for(other.fibers[view.thread], cell)) why = "nobody there has waited for the box before";
    else if (cell.read_epoch > view.epoch || cell.write_epoch > view.epoch) why = "it was used after that block told";
    else {
      if (cell.read_epoch == view.epoch && ((cell.readers & ~team) || ((cell.readers & ~mine) && cell.read_team_epoch >= view.team_epoch)
          || (cell.reader_warp == warp && cell.read_warp_epoch >= view.warp_epoch && (cell.lanes & ~(1u << view.thread % 32)))))
        why = "others there may be reading it";
      const bool same = cell.writer == warp;
      if (cell.write_epoch == view.epoch && (same ? cell.write_thread != view.thread && cell.write_warp_epoch >= view.warp_epoch
          : !(team >> cell.writer & 1) || cell.write_team_epoch >= view.team_epoch))
        why = "others there may be writing it";
    }
    if (why == nullptr && cell.written > other.fibers[cell.write_thread < 0 ? view.thread : cell.write_thread].fence) why = "no fence after ordinary writes";
    if (why != nullptr) fail("race: thread %d asks for a box over shared byte %u of block %d: %s", machine.current, 2 * c, other.block, why);
    cell.write_epoch = cell.read_epoch = -1;  // all that is behind the box, and before whoever has waited for it
    cell.readers = cell.lanes = 0;
  }
}
// The map as the emulator packs it: address, axes, bytes of a box's row, of an element, then five each of extents, box, and strides
// in bytes, 16 bits for the box.
struct Map {
  const unsigned char* base; int rank, swizzle, item; i64 dims[5], strides[5]; int box[5];
  explicit Map(const u64* w) {
    base = (const unsigned char*)w[0]; rank = (int)(w[1] & 0xff); swizzle = (int)(w[1] >> 8 & 0xffff); item = (int)(w[1] >> 24 & 0xff);
    for (int i = 0; i < 5; i++) {
      dims[i] = (i64)w[2 + i]; strides[i] = i == 0 ? item : (i64)w[6 + i];
      box[i] = (int)(w[11 + i / 4] >> (16 * (i % 4)) & 0xffff);
    }
  }
  i64 count() const { i64 n = 1; for (int i = 0; i < rank; i++) n *= box[i]; return n; }
};
static void ask(Machine& other, u32 to, const Map& map, const u64* words, u32 at, const int* coordinates) {
  const int i = mbarrier_of(other, at);
  Mbarrier& b = other.mbarriers[i];
  const long bytes = (long)map.count() * map.item;
  const Fiber& f = self();
  const bool own = &other == &machine;
  const std::vector<View> told = f.heard.empty() ? std::vector<View>() : f.heard[other.rank];
  const auto known = [](const View& v) { return v.known; };
  const auto one = std::find_if(told.begin(), told.end(), known);
  shared_inside(to, (int)bytes);
  if (own) machine.clock++;
  if (std::count_if(told.begin(), told.end(), known) > 1) check_told(other, told, to, (int)bytes);
  else if (own) for (u32 c = to; c < to + bytes; c += 16) check_write(c, 16, true);
  else check_behind(other, one == told.end() ? View{0, 0, 0, 0, false} : *one, to, (int)bytes);
  for (u32 c = to / 2; c < (to + bytes) / 2; c++) {
    Cell& cell = other.cells[c];
    if (cell.mbarrier) fail("thread %d asks for a box over an mbarrier at shared byte %u", machine.current, 2 * c);
    cell.flying++; cell.box = i; cell.phase = b.phase; cell.written = 0;
  }
  const std::pair<u32, u32> region = {to, to + (u32)bytes};
  if (std::find(b.boxes.begin(), b.boxes.end(), region) == b.boxes.end()) b.boxes.push_back(region);
  Flight flight = {to, i, {}, {}, bytes};
  memcpy(flight.map, words, sizeof flight.map);
  memcpy(flight.corner, coordinates, map.rank * sizeof(int));
  other.flights.push_back(flight);
}
// ``mask``: the blocks of the cluster in which the box lands; 0: this one.
void copy_box_at(u32 to, const u64* words, u32 at, int mask, const int* coordinates, int rank) {
  const Map map(words);
  check_after();
  if (rank != map.rank) fail("thread %d gives %d coordinates for a map of %d axes", machine.current, rank, map.rank);
  if (to % (8 * map.swizzle)) fail("thread %d asks for a box at shared byte %u, no multiple of %d", machine.current, to, 8 * map.swizzle);
  if (mask == 0) { ask(machine, to, map, words, at, coordinates); return; }
  for (int r = 0; r < 32; r++) if (mask >> r & 1) ask(neighbour(r, "asks for a box in"), to, map, words, at, coordinates);
}
static void land(int which) {
  Machine& m = machine;
  const Flight f = m.flights[which];
  m.flights.erase(m.flights.begin() + which);
  const Map map(f.map);
  const i64 count = map.count();
  for (i64 n = 0; n < count; n++) {
    i64 rest = n, offset = 0;
    bool inside = true;
    for (int i = 0; i < map.rank; i++) {
      const i64 at = f.corner[i] + rest % map.box[i];
      rest /= map.box[i];
      inside &= at >= 0 && at < map.dims[i];
      offset += at * map.strides[i];
    }
    u32 at = f.to + (u32)(n * map.item);
    at ^= at >> 3 & (u32)(map.swizzle - 16);  // the engine permutes 16-byte chunks by the bits of the address
    if (inside) memcpy(&m.shared[at], map.base + offset, map.item); else memset(&m.shared[at], 0, map.item);
  }
  for (u32 c = f.to / 2; c < (f.to + f.bytes) / 2; c++) m.cells[c].flying--;
  m.mbarriers[f.mbarrier].bytes -= f.bytes;
  advance(m.mbarriers[f.mbarrier]);
  m.progress++;
}
static bool land_one() {
  if (machine.flights.empty()) return false;
  land((int)(chance() % machine.flights.size()));
  return true;
}

const float* half_table();
// ---- warpgroups: four warps begin together, and the tensor cores read tiles as the copy engine writes them
void warpgroup_begin() {
  if (machine.threads % 128) fail("thread %d: %d threads are no warpgroups", machine.current, machine.threads);
  meet();
}
void warpgroup_commit() { meet(); self().multiplies.emplace_back(); self().multiplies.back().swap(self().reading); }
void warpgroup_wait_for(int left) {
  meet();
  Fiber& f = self();
  while ((int)f.multiplies.size() > left) { for (u32 c : f.multiplies.front()) machine.cells[c].multiplied--; f.multiplies.pop_front(); }
}
// ``row``: of the operand without the contracted axis; transposed: it is contiguous.
float tile_element(u64 descriptor, bool transposed, int row, int k, bool is_bf16) {
  const int width = 256 >> (descriptor >> 62), leading = (descriptor >> 16 & 0x3fff) << 4, stride = (descriptor >> 32 & 0x3fff) << 4;
  u32 at = (u32)(descriptor & 0x3fff) << 4;
  if (transposed) at += row / (width / 2) * leading + k / 8 * stride + k % 8 * width + row % (width / 2) * 2;
  else at += row / 8 * stride + row % 8 * width + k * 2;
  at ^= at >> 3 & (u32)(width - 16);
  note_read(at, 2);
  Cell& cell = machine.cells[at / 2];
  cell.multiplied++;
  self().reading.push_back(at / 2);
  if (cell.written > std::max(self().fence, machine.fibers[cell.write_thread < 0 ? machine.current : cell.write_thread].fence))
    fail("race: thread %d multiplies shared byte %u, no fence after ordinary writes", machine.current, at);
  u16 bits;
  memcpy(&bits, &machine.shared[at], 2);
  if (!is_bf16) return half_table()[bits];
  const u32 wide = (u32)bits << 16;
  float x;
  memcpy(&x, &wide, 4);
  return x;
}

// ---- integers that do not fit: g++ calls these where it is told to check signed arithmetic
#define OVERFLOWS(name, what) extern "C" void __ubsan_handle_##name(void*, void*, void*) { fail("thread %d: " what, machine.current); }
extern "C" void __ubsan_handle_negate_overflow(void*, void*) { fail("thread %d: an integer has no negative", machine.current); }
OVERFLOWS(add_overflow, "the sum of two integers overflows")
OVERFLOWS(sub_overflow, "the difference of two integers overflows")
OVERFLOWS(mul_overflow, "the product of two integers overflows")
OVERFLOWS(divrem_overflow, "a division by zero, or one that overflows")

const float* half_table() {
  static float table[65536];
  static bool made = false;
  if (!made) { for (int i = 0; i < 65536; i++) { u16 v = (u16)i; _Float16 h; memcpy(&h, &v, 2); table[i] = (float)h; } made = true; }
  return table;
}

// ---- running
static void start_block(void (*entry)(int)) {
  Machine& m = machine;
  std::fill(m.shared.begin(), m.shared.end(), 0xff);
  std::fill(m.cells.begin(), m.cells.end(), Cell{-1, -1, 0, -1, 0, -1, -1, -1, -1, -1, -1, -1, -1, 0, -1, 0, -1, -1, false});
  m.arrived = m.generation = 0; m.arrival = -1; m.seen = -1; m.idle = m.progress = 0; m.clock = 0; m.mbarriers.clear(); m.flights.clear();
  for (Warp& w : m.warps) w.arrived = w.generation = 0;
  for (Team& t : m.teams) t.arrived = t.generation = 0;
  for (Turn& t : m.turns) t = {0, 0, 0};
  m.all.arrived = m.all.generation = 0;
  for (int i = 0; i < m.threads; i++) {
    Fiber& f = m.fibers[i];
    f.stack.resize(1 << 17); f.done = f.blocked = f.after = false; f.generation = f.epoch = f.team_epoch = f.warp_epoch = f.all_epoch = f.group = 0; f.copies.clear();
    f.wrote = -1; f.cluster_epoch = 0; f.arrived_in = -1; f.fence = 0; f.waiting = false; f.seen.clear(); f.heard.clear(); f.reading.clear(); f.multiplies.clear();
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.data(); f.context.uc_stack.ss_size = f.stack.size(); f.context.uc_link = &m.scheduler;
    makecontext(&f.context, (void (*)())entry, 1, i);
  }
}
// One warp of the block at work runs for a while; false once all its threads have ended.
static bool run_warp() {
  Machine& m = machine;
  const int warps = m.threads / 32;
  std::vector<int> ready;
  bool left = false;
  for (int w = 0; w < warps; w++) {
    bool can = false;
    for (int i = 32 * w; i < 32 * w + 32; i++) { const Fiber& f = m.fibers[i]; left |= !f.done; can |= !f.done && !(f.blocked && f.generation == m.generation); }
    if (can) ready.push_back(w);
  }
  if (!left) {
    for (const Turn& t : m.turns) if (t.passed) { failed = true; snprintf(message, sizeof message, "block %d ends while a turn that was passed is not taken", blockIdx.x); }
    if (m.flights.empty()) return false;
    failed = true; snprintf(message, sizeof message, "block %d ends while a box is under way", blockIdx.x); return false;
  }
  if (!m.flights.empty() && chance() % 16 == 0) land_one();
  if (ready.empty() || m.idle > 64 * warps * (long)machines.size()) {
    if (land_one()) return true;
    int waits = -1;
    for (int i = 0; i < m.threads; i++) if (!m.fibers[i].done && m.fibers[i].waiting) waits = i;
    failed = true;
    if (waits >= 0) snprintf(message, sizeof message, "deadlock in block %d: thread %d waits for bytes that no box brings", blockIdx.x, waits);
    else snprintf(message, sizeof message, "deadlock in block %d: not every thread reaches the same barrier", blockIdx.x);
    return false;
  }
  const int w = ready[chance() % ready.size()];
  const int passes = chance() % 3 ? 1 + (int)(chance() % 64) : 1 << 20;  // a warp may run far ahead
  for (int pass = 0; pass < passes && !failed; pass++) {
    bool ran = false;
    const long before = m.progress;
    for (int i = 32 * w; i < 32 * w + 32 && !failed; i++) {
      Fiber& f = m.fibers[i];
      if (f.done || (f.blocked && f.generation == m.generation)) continue;
      ran = true; m.current = i;
      swapcontext(&m.scheduler, &f.context);
      if (f.done) m.progress++;
    }
    if (!ran || m.progress == before) break;
  }
  if (m.idle && chance() & 1) land_one();
  long progress = 0;  // a block that waits for another one of its cluster is not stuck
  for (const Machine& other : machines) progress += other.progress;
  m.idle = progress == m.seen ? m.idle + 1 : 0;
  m.seen = progress;
  return true;
}
static void run_cluster(void (*entry)(int), int first) {
  const int size = (int)machines.size();
  cluster_arrived = cluster_generation = 0;
  for (int rank = 0; rank < size; rank++) {
    at_work = &machines[rank];
    machine.block = first + rank; machine.rank = rank; blockIdx.x = machine.block;
    start_block(entry);
  }
  std::vector<int> left(size);
  for (int rank = 0; rank < size; rank++) left[rank] = rank;
  while (!left.empty() && !failed) {
    const int n = (int)(chance() % left.size());
    at_work = &machines[left[n]]; blockIdx.x = machine.block;
    if (!run_warp()) left.erase(left.begin() + n);
  }
}
void finish_thread() {
  // else a kernel might end before the one before it, and whoever waits for this one would not wait for that one
  if (!self().after) fail("thread %d ends, and has not waited for the kernel before", machine.current);
  self().done = true;
  yield();
}
int run_blocks(
    void (*entry)(int), int blocks, int cluster, int threads, int bytes, const u64* ranges, int count, u64 seed, char* told) {
  failed = false;
  gridDim.x = blocks;
  chance.seed(seed);
  machines.resize(cluster);
  for (Machine& m : machines) {
    m.threads = threads; m.fibers.resize(threads); m.warps.resize(threads / 32); m.teams.resize(threads / 32); m.turns.resize(threads / 32); m.team_warps = m.all_warps = 1;
    m.shared.resize((bytes + 127) / 128 * 128 + 128); m.cells.resize(m.shared.size() / 2);
    m.ranges.clear();
    for (int i = 0; i < count; i++)
      m.ranges.push_back({(const unsigned char*)ranges[3 * i], (const unsigned char*)ranges[3 * i + 1], (Kind)ranges[3 * i + 2]});
  }
  std::vector<int> order(blocks / cluster);
  for (size_t i = 0; i < order.size(); i++) order[i] = (int)i * cluster;
  std::shuffle(order.begin(), order.end(), chance);
  for (size_t i = 0; i < order.size() && !failed; i++) run_cluster(entry, order[i]);
  std::vector<Machine>().swap(machines);  // every kernel is a library of its own, and stays loaded
  if (failed) memcpy(told, message, sizeof message);
  return failed;
}
