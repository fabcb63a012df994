// Which blocks of an attention's scores a mask leaves something of, where data decide it (documents, lengths).
#pragma once

#include <optional>

#include "ops/core/builder.h"

namespace tatara {

/// Scores [batch, heads, rows, keys], which a condition may make -infinity, in blocks of so many rows and keys: bools
/// [batch or 1, heads or 1, blocks of rows, blocks of keys], true where some score of a block may be above -infinity. From the smallest and
/// largest values of each block, by interval arithmetic through comparisons, sums and logic. Nothing where blocks don't divide the
/// scores, where the condition is not understood, or depends on places alone (loops::Attention knows these by itself).
std::optional<ValueId> needed_blocks(GraphBuilder& b, ValueId scores, int64_t rows, int64_t keys);

}  // namespace tatara
