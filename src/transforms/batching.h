// Batching (vmap) inside graphs: what stands between the two markers of a level is a function of one example, and becomes code
// over all of them.
#pragma once

#include <cstdint>

#include "ir/graph.h"
#include "ops/core/builder.h"
#include "support/pass_options.h"

namespace tatara {

/// What random operators do inside a level, as the host's `randomness`.
enum class Randomness : uint8_t { kError, kSame, kDifferent };

/// One example of `operand` along dimension `dim` (wrapped already): a value of its type without that dimension. `level` tells
/// one call of vmap from another.
ValueId add_batch_in(GraphBuilder& builder, ValueId operand, int64_t dim, int64_t level,
                     Randomness randomness = Randomness::kError);
/// All examples of `operand` again, with the batch as dimension `dim` of the result, `size` examples. Laid out as eager's
/// result of a fresh value: contiguous with the batch in front, then moved.
ValueId add_batch_out(GraphBuilder& builder, ValueId operand, int64_t dim, int64_t level, Expr size);

bool is_batch_in(const Node& node);
bool is_batch_out(const Node& node);

/// Replaces the neighbouring batch_out nodes of one level from `node` on, and what they close, by batched code. Levels inside
/// must have been expanded before, and gradients among the nodes too. Unsupported with the reason where a rule is missing.
/// A result that depends on the batch by its sizes alone is written out for each example, as in eager.
Graph expand_batches_at(const Graph& graph, size_t node, const PassOptions& options = {});

}  // namespace tatara
