#include "runtime/plan/run_context.h"

#include <algorithm>
#include <mutex>

namespace tatara {

bool RunContext::suits(std::span<const int64_t> values) const {
  return resolved && std::equal(values.begin(), values.end(), symbols.begin(), symbols.end());
}

void RunContext::place_arena(std::byte* base) {
  for (const auto& [buffer, offset] : arena_offsets) data[buffer] = base + offset;
}

void RunContext::drop_results() {
  std::fill(owned.begin(), owned.end(), nullptr);
  std::fill(original.begin(), original.end(), nullptr);
}

std::unique_ptr<RunContext> ContextPool::take(std::span<const int64_t> symbols) {
  std::unique_ptr<RunContext> context(spare_.exchange(nullptr, std::memory_order_acq_rel));
  if (context == nullptr || (kept_ > 0 && !context->suits(symbols))) {
    const std::lock_guard lock(mutex_);
    if (context != nullptr) rest_.push_back(std::move(context));
    auto found = std::find_if(rest_.begin(), rest_.end(), [&](const auto& c) { return c->suits(symbols); });
    if (found == rest_.end() && rest_.size() >= kept_) found = rest_.begin();
    if (found != rest_.end()) {
      context = std::move(*found);
      rest_.erase(found);
    }
  }
  return context != nullptr ? std::move(context) : std::make_unique<RunContext>();
}

void ContextPool::give_back(std::unique_ptr<RunContext> context) {
  RunContext* expected = nullptr;
  if (spare_.compare_exchange_strong(expected, context.get(), std::memory_order_acq_rel)) {
    static_cast<void>(context.release());
    return;
  }
  const std::lock_guard lock(mutex_);
  rest_.push_back(std::move(context));
}

}  // namespace tatara
