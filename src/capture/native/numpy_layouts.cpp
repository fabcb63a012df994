// Functions of a loop's code that put elements elsewhere: transposes, differences of neighbours, arrays behind each other.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "capture/native/loop_ints.h"
#include "capture/native/loop_operations.h"
#include "support/error.h"

namespace tatara::capture::native {

size_t LoopOperations::dimension_of(int64_t axis, const GridRef& grid) const {
  const auto rank = static_cast<int64_t>(grid->extents.size());
  const int64_t d = axis < 0 ? axis + rank : axis;
  if (d < 0 || d >= rank) throw Unsupported("an axis that is not there");
  return static_cast<size_t>(d);
}

bool LoopOperations::is_in_order(const Grid& made) {
  if (made.extents.size() < 2) return true;
  for (const Read& read : made.reads) {
    int64_t before = INT64_MAX;
    for (size_t d = 0; d < read.view.extents.size(); ++d) {
      if (read.view.extents[d].is_const(1)) continue;
      if (!read.view.strides[d].is_const()) return false;
      const int64_t stride = std::abs(read.view.strides[d].const_value());
      if (stride > before) return false;
      before = stride;
    }
  }
  return true;
}

/// x.T
GridRef LoopOperations::transposed(const GridRef& grid) {
  const GridRef source = grid->view ? grid : materialise(grid);
  View view = *source->view;
  std::reverse(view.extents.begin(), view.extents.end());
  std::reverse(view.strides.begin(), view.strides.end());
  return view_grid(std::move(view));
}

/// np.diff(x) along a dimension.
GridRef LoopOperations::difference(const GridRef& grid, size_t d) {
  ExprContext& ctx = builder_->ctx();
  if (grid->dtype == DType::kBool || range_of(grid->extents[d]).lo < 1)
    throw Unsupported("differences of such an array");
  const GridRef source = grid->view ? grid : materialise(grid);
  View from = *source->view;
  from.extents[d] = ctx.sub(from.extents[d], ctx.constant(1));
  View to = from;
  to.offset = ctx.add(to.offset, to.strides[d]);
  return combine(loops::ScalarOp::kSub, view_grid(std::move(to)), view_grid(std::move(from)));
}

/// np.concatenate and its kin; without an axis, np.hstack's.
GridRef LoopOperations::joined_arrays(const Value& parts, std::optional<int64_t> axis) {
  const auto* tuple = std::get_if<std::shared_ptr<Sequence>>(&parts);
  if (tuple == nullptr || (*tuple)->items.empty()) throw Unsupported("arrays that are joined from something else");
  std::vector<GridRef> grids;
  for (const Value& item : (*tuple)->items) {
    const auto* grid = std::get_if<GridRef>(&item);
    if (grid == nullptr || (*grid)->extents.empty()) throw Unsupported("numbers that are joined");
    grids.push_back(*grid);
    if ((*grid)->dtype != grids[0]->dtype || (*grid)->extents.size() != grids[0]->extents.size())
      throw Unsupported("arrays of several types that are joined");
  }
  const size_t d = dimension_of(axis ? *axis : grids[0]->extents.size() > 1 ? 1 : 0, grids[0]);
  ExprContext& ctx = builder_->ctx();
  std::vector<Expr> extents = grids[0]->extents;
  for (size_t n = 1; n < grids.size(); ++n) {
    for (size_t other = 0; other < extents.size(); ++other) {
      if (other != d && grids[n]->extents[other] != extents[other])
        throw Unsupported("arrays of sizes that are not known to be equal");
    }
    extents[d] = ctx.add(extents[d], grids[n]->extents[d]);
  }
  const GridRef all = temporary(grids[0]->dtype, extents);
  View part = *all->view;
  for (const GridRef& grid : grids) {
    part.extents = grid->extents;
    assign(part, grid);
    part.offset = ctx.add(part.offset, ctx.mul(grid->extents[d], part.strides[d]));
  }
  auto joined = std::make_shared<Grid>(*all);
  joined->in_rows = std::all_of(grids.begin(), grids.end(), [](const GridRef& grid) { return is_in_order(*grid); });
  return joined;
}

}  // namespace tatara::capture::native
