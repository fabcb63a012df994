// Shape arithmetic of views, shared by the view operators, their inverses and the functionalizer.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ops/core/family_util.h"

namespace tatara::ops {

/// Sizes with -1 replaced. InvalidArgument with eager's message when `numel` does not fit.
std::vector<Expr> infer_sizes(ExprContext& ctx, std::vector<Expr> sizes, const std::vector<Expr>& old_sizes);
/// Strides of a view with other sizes of the same elements; nullopt where only a copy will do. Guards on symbolic sizes.
std::optional<std::vector<Expr>> view_strides(ExprContext& ctx, const TensorType& type, const std::vector<Expr>& sizes);

struct SliceRange {
  Expr start;
  Expr length;
  Expr step;
};
/// Python's slice rules over a dimension of `size`; None bounds mean the ends.
SliceRange slice_range(ExprContext& ctx, Expr size, const Arg& start, const Arg& end, const Arg& step);
/// An index wrapped into [0, size); InvalidArgument with eager's message when it is out of range.
Expr wrap_index(ExprContext& ctx, Expr index, Expr size, int64_t dim, bool select);

using IndexMap = std::function<std::vector<Expr>(std::span<const Expr>)>;
/// Indices into a tensor of `from` sizes for indices into the same elements seen with `to` sizes.
IndexMap reshape_map(ExprContext& ctx, std::vector<Expr> from, std::vector<Expr> to);
/// Indices into a contiguous tensor of `from` sizes for indices of a view of its memory.
IndexMap strided_map(ExprContext& ctx, std::vector<Expr> from, std::vector<Expr> strides, Expr offset);
/// The index map of a node of kind kView; null when its elements are not those of operand 0 as they stand.
IndexMap view_map(const Graph& graph, const Node& node);
/// Where a view begins, in elements of its own, if operand 0 begins at `offset`, in elements of that. Invalid: nobody knows.
Expr offset_behind(const Graph& graph, ValueId view, Expr offset);

}  // namespace tatara::ops
