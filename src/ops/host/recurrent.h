// Recurrent layers, which are the host's.
#pragma once

#include "ops/core/op_def.h"

namespace tatara {

/// Whether it does the same with each step of operand 0, a sequence of three dimensions: steps are the first of them, or the
/// second where the last argument says so.
bool repeats_steps(const OpDef& op);

}  // namespace tatara
