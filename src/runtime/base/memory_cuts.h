// Where a run is cut, so that what is allocated and freed between its parts costs no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tatara {

struct StepMemory {
  int64_t made = 0;    // bytes that come into being before the step
  int64_t freed = 0;   // that go after it
  bool alone = false;  // the step is a stretch of its own
};

/// Ends of the longest stretches of steps such that the run holds at most `slack` bytes more than step by step, when all that a
/// stretch makes comes into being before it and all that it frees goes after it.
std::vector<size_t> cut_by_memory(std::span<const StepMemory> steps, int64_t slack);

}  // namespace tatara
