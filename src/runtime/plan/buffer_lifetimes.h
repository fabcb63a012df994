// When a run needs each buffer first and last.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/plan.h"

namespace tatara {

/// When each input and each result of the host's operators is needed for the last time: from then on its memory may be the
/// host's again. And when each output is needed first.
struct BufferLifetimes {
  explicit BufferLifetimes(const Plan& plan);
  std::vector<std::vector<size_t>> last_reads;  // per step: inputs that nothing needs after it
  std::vector<std::vector<size_t>> first_uses;  // per step: output buffers that nothing needs before it
  std::vector<std::vector<BufferId>> releases;  // per step: results of the host's operators that nothing needs after it
};

}  // namespace tatara
