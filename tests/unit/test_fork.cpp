// A forked child finds our locks free and what they guard whole, whatever other threads did.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "llvm_for_tests.h"
#include "runtime/base/arena.h"
#include "runtime/base/history.h"
#include "runtime/base/thread_pool.h"
#include "support/error.h"
#include "support/fork.h"
#include "support/made_once.h"
#include "support/options.h"
#include "testing.h"

namespace tatara {
namespace {

#if !defined(__SANITIZE_THREAD__)  // thread sanitizer does not support new threads in a forked child

/// Exit status of fn in a forked child; -1 when it hung or crashed.
int in_child(const std::function<int()>& fn) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(fn());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Threads that do the same again and again while it lives.
class Busy {
 public:
  explicit Busy(const std::vector<std::function<void()>>& works) {
    for (const auto& work : works) {
      threads_.emplace_back([this, work] {
        while (!stop_.load()) work();
      });
    }
  }
  ~Busy() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

void forks(int count, const std::vector<std::function<void()>>& works, const std::function<int()>& fn) {
  const Busy busy(works);
  for (int i = 0; i < count; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    ASSERT_EQ(in_child(fn), 0);
  }
}

/// Two numbers that are the same while nobody changes them.
struct Guarded {
  ForkSafeMutex mutex;
  int first = 0;
  int second = 0;

  void change() {
    const std::lock_guard lock(mutex);
    ++first;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    ++second;
  }
  bool whole() {
    const std::lock_guard lock(mutex);
    return first == second;
  }
};

TEST(Fork, LocksAreFreeAndWhatTheyGuardIsWhole) {
  Guarded outer, inner;
  const auto both = [&] {
    const std::lock_guard lock(outer.mutex);
    ++outer.first;
    inner.change();
    ++outer.second;
  };
  const auto tries = [&] {
    const std::unique_lock lock(inner.mutex, std::try_to_lock);
    if (!lock) return;
    ++inner.first;
    ++inner.second;
  };
  forks(60, {both, both, tries, [&] { inner.change(); }, [&] { outer.change(); }},
        [&] { return outer.whole() && inner.whole() && !ForkSection::inside() ? 0 : 1; });
  EXPECT_TRUE(outer.first > 0 && inner.first > 0);
}

TEST(Fork, FromWithinALock) {
  Guarded mine, other;
  const uint64_t generation = fork_generation();
  {
    const std::lock_guard lock(mine.mutex);
    EXPECT_TRUE(ForkSection::inside());
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      const bool good = ForkSection::inside() && !mine.mutex.try_lock() && other.whole();
      _exit(good && fork_generation() == generation + 1 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_FALSE(ForkSection::inside());
  EXPECT_EQ(fork_generation(), generation);
  const auto grandchild = [&] { return mine.whole() && fork_generation() == generation + 2 ? 0 : 1; };
  EXPECT_EQ(in_child([&] { return in_child(grandchild); }), 0);
}

TEST(Fork, ThreadsForkAtOnce) {
  Guarded guarded;
  std::atomic<int> failed{0};
  const auto fork_now = [&] { failed += in_child([&] { return guarded.whole() ? 0 : 1; }) != 0 ? 1 : 0; };
  forks(20, {fork_now, fork_now, [&] { guarded.change(); }}, [&] { return guarded.whole() ? 0 : 1; });
  EXPECT_EQ(failed.load(), 0);
}

TEST(Fork, OptionsHistoryAndArenas) {
  HistoryRecorder recorder, of_thread;
  recorder.start();
  const HistoryEvent event;
  const auto run = [&] { record_history({event, event}); };
  const auto memory = [&] {
    Arena arena;
    arena.resize(size_t{4} << 20);  // of those that runs share
    static_cast<void>(arena.enter());
    arena.leave();
  };
  const auto options = [&] { set_option(Option::kKeepOutputsMb, option_int(Option::kKeepOutputsMb) + 1); };
  std::thread([&] { of_thread.start(); }).join();
  forks(20, {run, run, memory, memory, options, [&] { static_cast<void>(recorder.events(0)); }}, [&] {
    set_option(Option::kKeepOutputsMb, option_int(Option::kKeepOutputsMb));
    memory();
    const size_t before = recorder.size(), dead = of_thread.size();
    run();
    // The thread that began to listen is not there.
    return recorder.size() == before + 2 && of_thread.size() == dead && before % 2 == 0 ? 0 : 1;
  });
  reset_option(Option::kKeepOutputsMb);
}

TEST(Fork, WhileOtherThreadsCompile) {
  LlvmProvider* llvm = llvm_for_tests();
  if (llvm == nullptr) GTEST_SKIP() << "no LLVM here";
  const auto compile = [&](const std::string& name) {
    const std::string text = "define float @" + name + "(float %x) {\n  %y = fmul float %x, 2.0\n  ret float %y\n}\n";
    return llvm->compile(text, TargetOptions{}).bytes.empty() ? 1 : 0;
  };
  EXPECT_EQ(compile("first"), 0);
  const auto again = [&] { static_cast<void>(compile("again")); };
  forks(20, {again, again}, [&] { return compile("of_child"); });
}

TEST(Fork, ValuesMadeOnceAreTheSameForAllThreads) {
  std::atomic<const void*> seen{nullptr};
  std::atomic<int> others{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const std::string& value = made_once([] { return std::string("a value"); });
      const void* first = nullptr;
      if (!seen.compare_exchange_strong(first, &value) && first != &value) ++others;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(others.load(), 0);
}

#endif

}  // namespace
}  // namespace tatara
