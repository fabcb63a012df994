// Graph -> Graph passes. Each is a free function that returns a new graph and leaves its argument alone.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "support/pass_options.h"

namespace tatara {

/// Replaces every node that has OpDef::decompose (and no `lower`, or whose decomposition accepts it) until all are
/// primitives or host operators.
Graph decompose(const Graph& graph, const PassOptions& options = {});
/// Constant folding, algebraic identities that are exact in floating point, removal of no-op casts and views.
Graph canonicalize(const Graph& graph, const PassOptions& options = {});
/// On GPUs the biases of convolutions become sums of their own.
Graph split_biases(const Graph& graph, const PassOptions& options = {});
/// On GPUs the biases of linear layers become part of the host's products where no kernel does more with the sums.
Graph join_biases(const Graph& graph, const PassOptions& options = {});
/// Gives convolutions channels-last operands where the host's kernels gain by it. Outputs keep their strides.
Graph channels_last(const Graph& graph, const PassOptions& options = {});
/// Float32 products on GPUs as sums of products of bfloat16 parts, where kernels of ours are faster than the host's.
Graph own_products(const Graph& graph, const PassOptions& options = {});
/// On GPUs, two products of half types with a softmax between them as an attention in one kernel, with what makes scores of the first one.
Graph fuse_attention(const Graph& graph, const PassOptions& options = {});
/// Likewise, in a graph of gradients: what these compute from scores, and products by it, as kernels that compute the scores again.
Graph attention_gradients(const Graph& graph, const PassOptions& options = {});
/// On GPUs, where gradients flow to the inputs marked: a softmax with the product behind it as one node that keeps a number for each
/// row, the scores before it as a region that is computed again.
Graph softmax_products(const Graph& graph, const std::vector<bool>& inputs, const PassOptions& options = {});
/// Products of a computed matrix (a dequantised weight) with a few rows as reductions in whose loops the matrix is computed.
Graph thin_products(const Graph& graph, const PassOptions& options = {});
/// A step of it: what products of at most so many rows read, and is written part by part, as these parts joined.
Graph join_unpacked_parts(const Graph& graph, int64_t most_rows);
/// On CPUs: products of matrices that stay in the cache as reductions, where that is faster than the host's.
Graph cpu_products(const Graph& graph, const PassOptions& options = {});
/// Splits big products on GPUs whose result has rows of an odd length, so that most of it is done by the host's fast kernels.
Graph align_matmuls(const Graph& graph, const PassOptions& options = {});
/// Gives attention on GPUs masks with contiguous rows, without which the host computes it in single steps.
Graph align_attention_masks(const Graph& graph, const PassOptions& options = {});
/// On GPUs, the maximum of long rows and the sum of exponentials beside it become one reduction. Where these find each other, after
/// common subexpressions are one.
Graph online_softmax(const Graph& graph, const PassOptions& options = {});
/// Common subexpressions (not over random or nondeterministic operators).
Graph eliminate_common_subexpressions(const Graph& graph, const PassOptions& options = {});
/// Sums of gradients of parts that don't meet, as one tensor with all of them. After common subexpressions are one: zeros are then.
Graph sum_parts(const Graph& graph, const PassOptions& options = {});
/// Views of what inverses of views give, as what was written there or views of what was there before, but for tensors that write_parts
/// will write in place; and no writes of what is there already.
Graph read_parts(const Graph& graph, const PassOptions& options = {});
/// Inverses of views that give an input its new contents, as writes of the part that changes. After common subexpressions are one.
Graph write_parts(const Graph& graph, const PassOptions& options = {});
/// In place: what a graph on a GPU computes on the CPU from constants (a table of positions, an index) is computed on the GPU, where
/// nothing else needs it. Values keep their ids. `constant_inputs` says which inputs are constants; gives those that are to be on
/// the GPU as well.
std::vector<size_t> place_constants(Graph& graph, const std::vector<bool>& constant_inputs = {});
/// Runs of equal turns, as a trace of a loop leaves them, as loops that are nodes (ops/rules/loop_node.h), on the CPU. `training`:
/// gradients come to results. `calls` gets the first and the last recorded call of each loop.
Graph roll_loops(const Graph& graph, bool training, const PassOptions& options = {},
                 std::vector<std::pair<int, int>>* calls = nullptr);
/// Random numbers that turns of loops draw, as rows of what one loop draws before them, on the CPU: before loops become nodes.
Graph draw_ahead(const Graph& graph, const PassOptions& options = {});
/// Many writes of parts to a tensor, one after the other, as one write of all of them, on the CPU: before loops become nodes.
Graph join_writes(const Graph& graph, const PassOptions& options = {});
/// Values that nothing uses.
Graph eliminate_dead_code(const Graph& graph, const PassOptions& options = {});

/// Of each node, whether an output, a write or another such node reads its results; of those that nothing reads `kept` is asked,
/// from the last node to the first.
std::vector<bool> needed_nodes(const Graph& graph, const std::function<bool(const Node&)>& kept);

}  // namespace tatara
