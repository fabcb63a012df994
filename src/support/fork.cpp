#include "support/fork.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <array>
#include <atomic>

namespace tatara {
namespace {

/// Threads inside of sections, in several places so that threads seldom share a cache line.
struct Gate {
  static constexpr unsigned kPlaces = 16;
  struct alignas(64) Place {
    std::atomic<int64_t> inside{0};
  };
  std::array<Place, kPlaces> places;
  std::atomic<int> forking{0};  // threads that are about to fork, or do
  std::atomic<uint64_t> generation{0};
  std::atomic<unsigned> next_place{0};

  int64_t inside() const {
    int64_t sum = 0;
    for (const Place& place : places) sum += place.inside.load();
    return sum;
  }
};

constinit Gate g_gate;
constinit thread_local int t_depth = 0;
constinit thread_local Gate::Place* t_place = nullptr;

/// Sections are short: what is waited for happens within microseconds, or a thread that does it has to get a core first.
class Patience {
 public:
  void wait() {
    constexpr int kYields = 64;
    if (++rounds_ < kYields) {
      sched_yield();
      return;
    }
    constexpr timespec kPause{0, 50'000};
    nanosleep(&kPause, nullptr);
  }

 private:
  int rounds_ = 0;
};

void before_fork() {
  g_gate.forking.fetch_add(1);
  // A fork from within a section (a signal handler's) must not wait for itself.
  const int64_t own = t_depth > 0 ? 1 : 0;
  for (Patience patience; g_gate.inside() > own;) patience.wait();
}

void in_parent() { g_gate.forking.fetch_sub(1); }

void in_child() {
  // Threads that were on their way in and back again may have been counted.
  for (Gate::Place& place : g_gate.places) place.inside.store(0);
  if (t_depth > 0) t_place->inside.store(1);
  g_gate.forking.store(0);
  g_gate.generation.fetch_add(1);
}

[[maybe_unused]] const int registered = pthread_atfork(before_fork, in_parent, in_child);

}  // namespace

bool ForkSection::inside() { return t_depth > 0; }

void ForkSection::enter() {
  if (t_depth++ > 0) return;
  if (t_place == nullptr) {
    t_place = &g_gate.places[g_gate.next_place.fetch_add(1, std::memory_order_relaxed) % Gate::kPlaces];
  }
  // Of this thread and one that forks at the same time at least one sees the other: both write, then read.
  for (Patience patience;; patience.wait()) {
    t_place->inside.fetch_add(1);
    if (g_gate.forking.load() == 0) return;
    t_place->inside.fetch_sub(1);
  }
}

void ForkSection::leave() {
  if (--t_depth == 0) t_place->inside.fetch_sub(1, std::memory_order_release);
}

uint64_t fork_generation() { return g_gate.generation.load(std::memory_order_relaxed); }

}  // namespace tatara
