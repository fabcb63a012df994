#include "runtime/base/thread_pool.h"

#include <dlfcn.h>
#include <link.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "support/error.h"
#include "support/fork.h"
#include "support/made_once.h"
#include "support/options.h"

namespace tatara {
namespace {

/// One parallel loop. Pieces are handed out by an atomic counter, so a late thread costs nothing.
class Loop {
 public:
  /// At most `threads` do the work, of any number that come to it.
  Loop(int64_t begin, int64_t end, int64_t piece, int threads, RangeFn fn, void* context)
      : next_(begin), places_(threads), end_(end), piece_(piece), fn_(fn), context_(context) {}

  void work() noexcept {
    if (places_.fetch_sub(1, std::memory_order_relaxed) <= 0) return;
    for (;;) {
      const int64_t start = next_.fetch_add(piece_, std::memory_order_relaxed);
      if (start >= end_) return;
      try {
        fn_(context_, start, std::min(start + piece_, end_));
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!error_) error_ = std::current_exception();
        next_.store(end_, std::memory_order_relaxed);
      }
    }
  }

  void finish() {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic<int64_t> next_;
  std::atomic<int> places_;
  const int64_t end_;
  const int64_t piece_;
  const RangeFn fn_;
  void* const context_;
  std::mutex mutex_;  // of this loop's threads: a fork leaves them behind with it
  std::exception_ptr error_;
};

thread_local bool t_inside_loop = false;

class InsideLoop {
 public:
  InsideLoop() { t_inside_loop = true; }
  ~InsideLoop() { t_inside_loop = false; }
  InsideLoop(const InsideLoop&) = delete;
  InsideLoop& operator=(const InsideLoop&) = delete;
};

void work_inside(Loop& loop) noexcept {
  const InsideLoop inside;
  loop.work();
}

/// The libgomp in this process, by its symbols.
struct Gomp {
  void (*parallel)(void (*fn)(void*), void* data, unsigned threads, unsigned flags) = nullptr;
  int (*max_threads)() = nullptr;
  int (*in_parallel)() = nullptr;
};

/// The libgomp that torch brought: wheels carry their own copy under a mangled name, so the list of loaded libraries is
/// searched. Prefers the one with "torch" in its path when there are several.
Gomp find_gomp() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        const std::string_view path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
        const size_t slash = path.rfind('/');
        const std::string_view file = slash == std::string_view::npos ? path : path.substr(slash + 1);
        if (file.starts_with("libgomp")) static_cast<std::vector<std::string>*>(data)->emplace_back(path);
        return 0;
      },
      &paths);
  std::stable_partition(paths.begin(), paths.end(),
                        [](const std::string& path) { return path.find("torch") != std::string::npos; });
  for (const std::string& path : paths) {
    // Kept open for good: its threads may run at any time.
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) continue;
    Gomp gomp;
    gomp.parallel = reinterpret_cast<decltype(gomp.parallel)>(dlsym(library, "GOMP_parallel"));
    gomp.max_threads = reinterpret_cast<decltype(gomp.max_threads)>(dlsym(library, "omp_get_max_threads"));
    gomp.in_parallel = reinterpret_cast<decltype(gomp.in_parallel)>(dlsym(library, "omp_in_parallel"));
    if (gomp.parallel != nullptr && gomp.max_threads != nullptr && gomp.in_parallel != nullptr) return gomp;
  }
  return {};
}

std::atomic<bool> g_use_own{false};

/// Found once and never dropped. While none is found it is looked for again each time: the host may be loaded later.
const Gomp* gomp() {
  static constinit std::atomic<const Gomp*> found{nullptr};
  static constinit std::atomic<size_t> libraries_seen{0};
  if (const Gomp* known = found.load(std::memory_order_acquire)) return known;
  // dlpi_adds counts the libraries loaded so far: nothing new, nothing to search.
  size_t loaded = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        *static_cast<size_t*>(data) = static_cast<size_t>(info->dlpi_adds);
        return 1;
      },
      &loaded);
  if (loaded == libraries_seen.load(std::memory_order_acquire)) return found.load(std::memory_order_acquire);
  const Gomp candidate = find_gomp();
  const Gomp* first = candidate.parallel != nullptr ? &made_once([&] { return candidate; }) : nullptr;
  if (first != nullptr) found.store(first, std::memory_order_release);
  libraries_seen.store(loaded, std::memory_order_release);
  return first;
}

/// libgomp when its threads may be used.
const Gomp* usable_gomp() {
  // A forked child's libgomp may still believe in the parent's threads and would wait for them for ever.
  if (g_use_own.load(std::memory_order_relaxed) || fork_generation() > 0) return nullptr;
  return gomp();
}

/// Our own threads, used when the host brings none. One loop at a time; a second caller runs its loop alone.
class OwnPool {
 public:
  static OwnPool& get() {
    // Never destroyed: its threads sleep until the process ends.
    static constinit std::atomic<OwnPool*> instance{nullptr};
    OwnPool* present = instance.load(std::memory_order_acquire);
    if (present != nullptr && present->generation_ == fork_generation()) return *present;
    // After a fork the child has none of the parent's threads, so it makes a new pool and forgets the old one.
    auto* fresh = new OwnPool;
    if (instance.compare_exchange_strong(present, fresh, std::memory_order_acq_rel)) return *fresh;
    delete fresh;
    return *present;
  }

  /// False when another thread is using the pool: the caller then works alone.
  bool run(Loop& loop, int threads) {
    const std::unique_lock busy(busy_, std::try_to_lock);
    if (!busy.owns_lock()) return false;
    start_threads(static_cast<size_t>(threads) - 1);
    {
      const std::lock_guard lock(mutex_);
      loop_ = &loop;
      wanted_ = std::min(static_cast<size_t>(threads) - 1, threads_);
      ++round_;
    }
    wake_.notify_all();
    work_inside(loop);
    std::unique_lock lock(mutex_);
    // Threads that have not begun yet are not waited for: there is nothing left to do for them.
    wanted_ = 0;
    done_.wait(lock, [&] { return working_ == 0; });
    loop_ = nullptr;
    return true;
  }

 private:
  void start_threads(size_t count) {
    for (; threads_ < count; ++threads_) std::thread([this] { serve(); }).detach();
  }

  [[noreturn]] void serve() {
    uint64_t seen = 0;
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return round_ != seen && wanted_ > 0; });
      seen = round_;
      --wanted_;
      ++working_;
      Loop* loop = loop_;
      lock.unlock();
      work_inside(*loop);
      lock.lock();
      if (--working_ == 0) done_.notify_all();
    }
  }

  std::mutex busy_;   // a forked child makes a pool of its own
  std::mutex mutex_;  // likewise
  std::condition_variable wake_;
  std::condition_variable done_;
  Loop* loop_ = nullptr;
  size_t threads_ = 0;
  size_t wanted_ = 0;
  size_t working_ = 0;
  uint64_t round_ = 0;
  const uint64_t generation_ = fork_generation();
};

}  // namespace

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int num_threads() {
  // The option is read again only when an option changed: this is on the path of every kernel.
  static std::atomic<uint64_t> seen{~uint64_t{0}};
  static std::atomic<int> fixed{0};
  const uint64_t generation = options_generation();
  if (seen.load(std::memory_order_acquire) != generation) {
    fixed.store(static_cast<int>(std::clamp<int64_t>(option_int(Option::kNumThreads), 0, 4096)));
    seen.store(generation, std::memory_order_release);
  }
  if (const int threads = fixed.load(std::memory_order_relaxed); threads > 0) return threads;
  if (const Gomp* pool = gomp()) return std::max(1, pool->max_threads());
  return made_once([] { return available_cores(); });
}

std::string thread_pool_kind() { return usable_gomp() != nullptr ? "libgomp" : "own"; }

void use_own_thread_pool(bool own) { g_use_own.store(own, std::memory_order_relaxed); }

void parallel_for(int64_t begin, int64_t end, int64_t grain, RangeFn fn, void* context) {
  if (begin >= end) return;
  const int64_t size = end - begin;
  grain = std::max<int64_t>(grain, 1);
  if (size <= grain || t_inside_loop) return fn(context, begin, end);
  const int64_t most = (size + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<int64_t>(num_threads(), most));
  if (threads <= 1) return fn(context, begin, end);
  // Even shares, a few per thread when the grain allows: one slow thread then does not hold up the rest.
  constexpr int64_t kPiecesPerThread = 4;
  const int64_t pieces = std::min(most, threads * kPiecesPerThread);
  Loop loop(begin, end, std::max(grain, (size + pieces - 1) / pieces), threads, fn, context);
  if (const Gomp* pool = usable_gomp()) {
    if (pool->in_parallel() != 0) return fn(context, begin, end);
    // Always torch's whole team: libgomp ends the threads that a smaller team does not need, and makes new ones for the next.
    const auto team = static_cast<unsigned>(std::max(threads, pool->max_threads()));
    pool->parallel([](void* data) { work_inside(*static_cast<Loop*>(data)); }, &loop, team, 0);
  } else if (!OwnPool::get().run(loop, threads)) {
    work_inside(loop);
  }
  loop.finish();
}

void compile_in_parallel(size_t count, const std::function<void(size_t)>& task) {
  const int64_t option = option_int(Option::kCompileThreads);
  const size_t threads = std::min(count, static_cast<size_t>(option > 0 ? option : available_cores()));
  std::atomic<size_t> next{0};
  std::mutex mutex;  // of this call's threads: a fork leaves them behind with it
  std::exception_ptr error;
  const auto work = [&] {
    for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      try {
        task(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        next.store(count);
      }
    }
  };
  std::vector<std::thread> helpers;
  for (size_t i = 1; i < threads; ++i) {
    try {
      helpers.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // no more threads to be had: those that there are do all the work
    }
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace tatara
