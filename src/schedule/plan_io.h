// Plans as bytes, for the disk cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/plan.h"

namespace tatara {

/// A self-contained encoding (no pointers, no addresses; expressions as text). Stable within one version of Tatara.
std::vector<uint8_t> encode_plan(const Plan& plan);
/// Inverse. CompilationError when the bytes are malformed.
Plan decode_plan(std::span<const uint8_t> bytes);

}  // namespace tatara
