// What was compiled and launched, for whoever listens (tatara.kernel_history()). Costs one relaxed load per run when nobody
// does.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tatara {

struct HistoryEvent {
  enum class Kind : uint8_t {
    kCompile,   // code of one kernel was made or found
    kLaunch,    // one kernel ran
    kHostCall,  // one operator of the host ran
    kGraph,     // a graph was compiled, start to end
  };
  Kind kind = Kind::kLaunch;
  std::string name;  // of the kernel or operator
  int64_t graph = -1;
  int64_t run = -1;  // kLaunch, kHostCall: events of one run share it
  int step = -1;     // index into the plan's steps
  int kernel = -1;   // index into the plan's kernels
  std::vector<std::string> operators;
  std::string loops;           // kCompile: the loop text
  std::string origin;          // kCompile: "memory", "disk" or "compiled"
  std::vector<int64_t> sizes;  // kLaunch: values of the kernel's size symbols
  int64_t iterations = 0;      // kLaunch: of the parallel space
  int64_t grain = 0;           // kLaunch: iterations that one thread takes at a time
  int64_t items = 0;           // kLaunch: of a list that it takes at once; 0: no list
  int64_t bytes = 0;           // kLaunch: memory read and written
  double start = 0;            // seconds on a clock that all events share
  double seconds = 0;
  uint64_t thread = 0;
};

namespace history_detail {
extern std::atomic<int> listeners;
}

/// Whether anybody listens.
inline bool history_on() { return history_detail::listeners.load(std::memory_order_relaxed) > 0; }

using HistoryClock = std::chrono::steady_clock;
/// Seconds since the first use of the clock in this process.
double history_seconds(HistoryClock::time_point at);
/// A number of the calling thread.
uint64_t history_thread();

/// Hands events to every listener. Thread-safe.
void record_history(std::vector<HistoryEvent> events);

/// Listens between start() and stop(). Several may listen at once, from any thread; each sees all threads' events.
class HistoryRecorder {
 public:
  HistoryRecorder();
  ~HistoryRecorder();
  HistoryRecorder(const HistoryRecorder&) = delete;
  HistoryRecorder& operator=(const HistoryRecorder&) = delete;

  void start();
  void stop();
  /// The events from number `first` on.
  std::vector<HistoryEvent> events(size_t first) const;
  size_t size() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tatara
