#include "runtime/base/history.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "support/fork.h"
#include "support/made_once.h"

namespace tatara {

namespace history_detail {

std::atomic<int> listeners{0};

/// Events of one listener.
struct Log {
  std::thread::id thread;  // that began to listen
  ForkSafeMutex mutex;
  std::vector<HistoryEvent> events;
};

struct Registry {
  ForkSafeMutex mutex;
  std::vector<std::shared_ptr<Log>> logs;
};

Registry& registry() { return made_once<Registry>(); }

/// Those that other threads began nobody would end in a forked child.
void keep_own_listeners() {
  std::erase_if(registry().logs, [](const auto& log) { return log->thread != std::this_thread::get_id(); });
  listeners.store(static_cast<int>(registry().logs.size()), std::memory_order_relaxed);
}

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, keep_own_listeners);

}  // namespace history_detail

struct HistoryRecorder::Impl {
  std::shared_ptr<history_detail::Log> log = std::make_shared<history_detail::Log>();
};

double history_seconds(HistoryClock::time_point at) {
  const HistoryClock::time_point& zero = made_once([] { return HistoryClock::now(); });
  return std::chrono::duration<double>(at - zero).count();
}

uint64_t history_thread() {
  static std::atomic<uint64_t> next{0};
  thread_local const uint64_t mine = next++;
  return mine;
}

void record_history(std::vector<HistoryEvent> events) {
  history_detail::Registry& registry = history_detail::registry();
  const std::lock_guard lock(registry.mutex);
  for (const auto& log : registry.logs) {
    const std::lock_guard log_lock(log->mutex);
    log->events.insert(log->events.end(), events.begin(), events.end());
  }
}

HistoryRecorder::HistoryRecorder() : impl_(std::make_unique<Impl>()) {}
HistoryRecorder::~HistoryRecorder() { stop(); }

void HistoryRecorder::start() {
  history_detail::Registry& registry = history_detail::registry();
  const std::lock_guard lock(registry.mutex);
  if (std::find(registry.logs.begin(), registry.logs.end(), impl_->log) != registry.logs.end()) return;
  impl_->log->thread = std::this_thread::get_id();
  registry.logs.push_back(impl_->log);
  history_detail::listeners.store(static_cast<int>(registry.logs.size()), std::memory_order_relaxed);
}

void HistoryRecorder::stop() {
  history_detail::Registry& registry = history_detail::registry();
  const std::lock_guard lock(registry.mutex);
  std::erase(registry.logs, impl_->log);
  history_detail::listeners.store(static_cast<int>(registry.logs.size()), std::memory_order_relaxed);
}

std::vector<HistoryEvent> HistoryRecorder::events(size_t first) const {
  const std::lock_guard lock(impl_->log->mutex);
  const auto& all = impl_->log->events;
  return {all.begin() + static_cast<std::ptrdiff_t>(std::min(first, all.size())), all.end()};
}

size_t HistoryRecorder::size() const {
  const std::lock_guard lock(impl_->log->mutex);
  return impl_->log->events.size();
}

}  // namespace tatara
