#include "support/cancel.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "support/fork.h"
#include "support/made_once.h"

namespace tatara {
namespace {
thread_local const CancelScope::Wanted* t_wanted = nullptr;

// Threads of run_or_abandon(), and the process (fork_generation()) that they belong to.
std::atomic<int> g_working{0};
std::atomic<uint64_t> g_generation{0};

void one_more() {
  if (g_generation.exchange(fork_generation()) != fork_generation()) g_working = 0;
  ++g_working;
}

/// Libraries that the work uses are taken apart when the process ends.
void wait_for_workers() {
  if (g_generation != fork_generation()) return;
  for (int n = g_working.load(); n != 0; n = g_working.load()) g_working.wait(n);
}

void one_less() {
  --g_working;
  g_working.notify_all();
}
}  // namespace

CancelScope::CancelScope(const Wanted* wanted) : before_(t_wanted) { t_wanted = wanted; }
CancelScope::~CancelScope() { t_wanted = before_; }
const CancelScope::Wanted* CancelScope::current() { return t_wanted; }

void check_cancelled() {
  if (t_wanted != nullptr && (*t_wanted)()) throw Cancelled{};
}

void run_or_abandon(std::function<void()> work) {
  constexpr std::chrono::milliseconds kSlice{5};
  if (t_wanted == nullptr) return work();
  check_cancelled();
  const auto task = std::make_shared<std::packaged_task<void()>>(std::move(work));
  std::future<void> done = task->get_future();
  one_more();
  try {
    std::thread([task] {
      (*task)();
      one_less();
    }).detach();
  } catch (const std::system_error&) {
    one_less();
    (*task)();  // no more threads to be had
  }
  while (done.wait_for(kSlice) != std::future_status::ready) {
    if (!(*t_wanted)()) continue;
    made_once([] { return std::atexit(wait_for_workers); });
    throw Cancelled{};
  }
  done.get();
}

}  // namespace tatara
