// Whether walking a row again in one kernel is cheaper than a kernel of its own.
#include <algorithm>
#include <cmath>

#include "schedule/loop_order.h"

namespace tatara::sched {

namespace {

constexpr double kLaunch = 1 << 12;      // bytes that could be moved while a kernel starts
constexpr double kAlone = 1 << 17;       // bytes that one thread moves before another one helps
constexpr double kCached = 0.4;          // reading again what the walk before left in the cache
constexpr int64_t kEnoughThreads = 512;  // of a multiprocessor that are enough
constexpr int64_t kGpuBlock = 1024;      // threads that share a row, at most
constexpr int64_t kGpuColumn = 64;       // threads that share a column, about
constexpr int64_t kGpuElements = 64;     // of a thread that are worth more than a launch
constexpr size_t kMostTensors = 64;      // that a kernel reads
constexpr double kCacheBytes = 1 << 20;  // that a thread's cache keeps between two walks

bool equal(const Access& a, const Access& b) {
  return a.buffer == b.buffer && a.address == b.address && a.store == b.store;
}

/// How many threads have work, on average over the time of the kernel.
double busy_threads(State& s, const Space& space, const NestPlan& plan, bool walks_once) {
  const auto threads = static_cast<double>(s.options.num_threads);
  if (space.has_reduction && walks_once && split_reduction(s, plan)) return threads;
  double pieces = 1;
  for (const LoopSpec& loop : plan.outer) {
    if (loop.kind == loops::LoopKind::kParallel) {
      pieces *= static_cast<double>(std::max<int64_t>(s.hint(loop.extent, 64), 1));
    }
  }
  return pieces / std::ceil(pieces / threads);
}

}  // namespace

namespace {

/// Of all stages, each once.
std::vector<Access> accesses_of(const std::vector<const Member*>& members, std::vector<Expr>& uses) {
  std::vector<Access> accesses;
  for (const Member* m : members) {
    if (m->stage == 0) uses.insert(uses.end(), m->index_uses.begin(), m->index_uses.end());
    for (const Access& access : m->accesses) {
      const auto same = [&](const Access& other) { return equal(access, other); };
      if (std::none_of(accesses.begin(), accesses.end(), same)) accesses.push_back(access);
    }
  }
  return accesses;
}

}  // namespace

bool fills_gpu_again(State& s, const Space& space, const std::vector<const Member*>& members, int64_t rows,
                     int64_t row) {
  const int64_t wanted = s.options.gpu->multiprocessors * kEnoughThreads;
  if (rows >= wanted || row <= kGpuElements) return true;
  std::vector<Expr> uses;
  const std::vector<Access> accesses = accesses_of(members, uses);
  const NestPlan plan = plan_nest(s, space, accesses, uses);
  // A thread for each element of the innermost loop, or for each passes of the loops that its columns share.
  int64_t shared = 1;
  for (const LoopSpec& loop : plan.inner) {
    const int64_t extent = std::max<int64_t>(s.hint(loop.extent, 64), 1);
    shared = loop.kind == loops::LoopKind::kVector ? std::min(extent, kGpuBlock)
                                                   : std::max(shared, std::min(extent, kGpuColumn));
  }
  const int64_t threads = rows * shared;
  return threads >= wanted || rows * row <= threads * kGpuElements;
}

bool too_many(const FlatSet<ValueId>& some, const FlatSet<ValueId>& others) {
  if (some.size() + others.size() <= kMostTensors) return false;
  size_t all = some.size();
  for (const ValueId v : others) all += some.contains(v) ? 0 : 1;
  return all > kMostTensors;
}

double kernel_cost(State& s, const Space& space, const std::vector<const Member*>& members) {
  int last = 0;
  for (const Member* m : members) last = std::max(last, m->stage);
  std::vector<Access> accesses;
  std::vector<bool> again;  // in a later walk
  std::vector<Expr> uses;
  bool walks_once = true;
  for (int stage = 0; stage <= last; ++stage) {
    const size_t before = accesses.size();
    for (const Member* m : members) {
      if (m->stage != stage) continue;
      walks_once = walks_once && (!m->full || stage == 0);
      if (stage == 0) uses.insert(uses.end(), m->index_uses.begin(), m->index_uses.end());
      for (const Access& access : m->accesses) {
        const auto same = [&](const Access& other) { return equal(access, other); };
        const auto walk = accesses.begin() + static_cast<std::ptrdiff_t>(before);
        if (std::any_of(walk, accesses.end(), same)) continue;
        again.push_back(std::any_of(accesses.begin(), walk, same));
        accesses.push_back(access);
      }
    }
  }
  const NestEstimate nest = estimate_nest(s, space, accesses, uses);
  double first = 0;
  double later = 0;
  for (size_t i = 0; i < accesses.size(); ++i) (again[i] ? later : first) += nest.bytes[i];
  const double threads = first + later < kAlone ? 1 : busy_threads(s, space, nest.plan, walks_once);
  double pieces = 1;
  for (const LoopSpec& loop : nest.plan.outer) {
    if (loop.kind == loops::LoopKind::kParallel) {
      pieces *= static_cast<double>(std::max<int64_t>(s.hint(loop.extent, 64), 1));
    }
  }
  const bool stays = first / pieces <= kCacheBytes;
  return kLaunch + (first + (stays ? kCached : 1) * later) / threads;
}

}  // namespace tatara::sched
