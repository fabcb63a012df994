#include "runtime/base/memory_cuts.h"

#include <algorithm>

namespace tatara {

std::vector<size_t> cut_by_memory(std::span<const StepMemory> steps, int64_t slack) {
  int64_t held = 0, most = 0;
  for (const StepMemory& step : steps) {
    held += step.made;
    most = std::max(most, held);
    held -= step.freed;
  }
  std::vector<size_t> ends;
  held = 0;
  int64_t freed = 0;  // by the stretch so far
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool apart = i > 0 && (steps[i].alone || steps[i - 1].alone);
    if (i > 0 && (apart || held + steps[i].made > most + slack)) {
      ends.push_back(i);
      held -= freed;
      freed = 0;
    }
    held += steps[i].made;
    freed += steps[i].freed;
  }
  if (!steps.empty()) ends.push_back(steps.size());
  return ends;
}

}  // namespace tatara
