// Which random operators read nothing of their operand but how it lies.
#pragma once

#include "ops/core/op_def.h"

namespace tatara {

/// Whether the numbers that the operator draws are the same for all operands of one type.
bool draws_by_type(const OpDef& op);

}  // namespace tatara
