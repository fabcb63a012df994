#pragma once

#include <cstdint>

#include "symbolic/expr.h"

namespace tatara {

/// Whether e is a multiple of n whatever its symbols are. False where that is not seen.
bool multiple_of(Expr e, int64_t n);

}  // namespace tatara
