// Plans as bytes, for the disk cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/plan.h"

namespace tatara {

/// A self-contained encoding (no pointers, no addresses). Stable within one build of Tatara. InternalError where sizes of the plan
/// are symbols: such plans are not kept.
std::vector<uint8_t> encode_plan(const Plan& plan);
/// Inverse. CompilationError when the bytes are malformed: cut short, too many, a flag or an enumerator out of range, text that is not
/// UTF-8. What the numbers mean is verify_plan's to say (schedule/plan_check.h).
Plan decode_plan(std::span<const uint8_t> bytes);

}  // namespace tatara
