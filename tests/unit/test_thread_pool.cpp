#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/thread_pool.h"
#include "support/options.h"
#include "testing.h"

namespace tatara {
namespace {

/// How often each index of [0, size) was visited.
std::vector<int> visits(int64_t size, int64_t grain) {
  std::vector<std::atomic<int>> counts(static_cast<size_t>(size));
  parallel_for(0, size, grain, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) counts[static_cast<size_t>(i)].fetch_add(1);
  });
  return {counts.begin(), counts.end()};
}

void check_everything() {
  for (const int64_t size : {0, 1, 2, 3, 7, 64, 1000, 4097}) {
    for (const int64_t grain : {1, 2, 5, 100, 100000}) {
      EXPECT_EQ(visits(size, grain), std::vector<int>(static_cast<size_t>(size), 1)) << size << " by " << grain;
    }
  }
}

/// Sets num_threads for a scope, and our own pool.
class WithThreads {
 public:
  explicit WithThreads(int64_t threads, bool own = true) {
    set_option(Option::kNumThreads, threads);
    use_own_thread_pool(own);
  }
  ~WithThreads() {
    reset_option(Option::kNumThreads);
    use_own_thread_pool(false);
  }
  WithThreads(const WithThreads&) = delete;
  WithThreads& operator=(const WithThreads&) = delete;
};

TEST(ThreadPool, OwnPoolVisitsEveryIndexOnce) {
  for (const int64_t threads : {1, 2, 3, 8}) {
    const WithThreads with(threads);
    EXPECT_EQ(num_threads(), threads);
    EXPECT_EQ(thread_pool_kind(), "own");
    check_everything();
  }
}

TEST(ThreadPool, PiecesKeepToTheGrain) {
  const WithThreads with(4);
  std::mutex mutex;
  std::vector<std::pair<int64_t, int64_t>> pieces;
  parallel_for(10, 110, 30, [&](int64_t b, int64_t e) {
    const std::lock_guard lock(mutex);
    pieces.emplace_back(b, e);
  });
  for (const auto& [b, e] : pieces) EXPECT_TRUE(e - b >= 30 || e == 110) << b << " to " << e;
}

TEST(ThreadPool, NestedLoopsRunOnTheirThread) {
  const WithThreads with(4);
  std::atomic<int> total{0};
  parallel_for(0, 16, 1, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) {
      const auto self = std::this_thread::get_id();
      parallel_for(0, 10, 1, [&](int64_t b2, int64_t e2) {
        if (std::this_thread::get_id() == self) total.fetch_add(static_cast<int>(e2 - b2));
      });
    }
  });
  EXPECT_EQ(total.load(), 160);
}

TEST(ThreadPool, FirstExceptionComesBackAndThePoolStaysUsable) {
  const WithThreads with(4);
  for (int round = 0; round < 50; ++round) {
    EXPECT_THROW(parallel_for(0, 100, 1,
                              [](int64_t b, int64_t) {
                                if (b >= 50) throw std::runtime_error("piece");
                              }),
                 std::runtime_error);
  }
  check_everything();
}

TEST(ThreadPool, SeveralCallersAtOnce) {
  const WithThreads with(3);
  std::vector<std::thread> callers;
  std::atomic<int64_t> total{0};
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        parallel_for(0, 100, 1, [&](int64_t b, int64_t e) { total.fetch_add(e - b); });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total.load(), 4 * 100 * 100);
}

/// Exit status of a forked child that runs a parallel loop; -1 when it hung or crashed.
[[maybe_unused]] int status_of_forked_loop() {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    std::atomic<int64_t> total{0};
    parallel_for(0, 1000, 1, [&](int64_t b, int64_t e) { total.fetch_add(e - b); });
    _exit(total.load() == 1000 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#if !defined(__SANITIZE_THREAD__)  // thread sanitizer does not support new threads in a forked child
TEST(ThreadPool, ForkedChildRunsLoops) {
  const WithThreads with(4);
  check_everything();
  EXPECT_EQ(status_of_forked_loop(), 0);
  check_everything();
}

TEST(ThreadPool, HostsOpenMpIsUsedWhenLoaded) {
  void* library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) GTEST_SKIP() << "no libgomp here";
  const WithThreads with(3, false);
  EXPECT_EQ(thread_pool_kind(), "libgomp");
  check_everything();
  // In the child libgomp's threads are gone; its own GOMP_parallel would hang.
  EXPECT_EQ(status_of_forked_loop(), 0);
  check_everything();
  EXPECT_THROW(parallel_for(0, 100, 1, [](int64_t, int64_t) { throw std::runtime_error("piece"); }),
               std::runtime_error);
}

TEST(ThreadPool, HostsThreadCountIsTaken) {
  void* library = dlopen("libgomp.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) GTEST_SKIP() << "no libgomp here";
  auto* set_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "omp_set_num_threads"));
  ASSERT_TRUE(set_threads != nullptr);
  set_threads(3);
  EXPECT_EQ(num_threads(), 3);
  set_threads(available_cores());
}
#endif

TEST(CompilePool, EveryTaskOnceAndErrorsComeBack) {
  std::vector<std::atomic<int>> counts(100);
  compile_in_parallel(100, [&](size_t i) { counts[i].fetch_add(1); });
  for (const auto& count : counts) EXPECT_EQ(count.load(), 1);
  compile_in_parallel(0, [](size_t) { throw std::runtime_error("never called"); });
  EXPECT_THROW(compile_in_parallel(10,
                                   [](size_t i) {
                                     if (i == 3) throw std::runtime_error("task");
                                   }),
               std::runtime_error);
}

TEST(CompilePool, ThreadsOptionIsAnUpperLimit) {
  set_option(Option::kCompileThreads, int64_t{1});
  std::set<std::thread::id> threads;
  compile_in_parallel(20, [&](size_t) { threads.insert(std::this_thread::get_id()); });
  EXPECT_EQ(threads.size(), 1u);
  reset_option(Option::kCompileThreads);
}

}  // namespace
}  // namespace tatara
