// On a GPU: what a reduction reads in another order than it writes is copied into that order first.
#include <algorithm>
#include <cmath>
#include <set>

#include "schedule/group_emitter.h"

namespace tatara::sched {

namespace {

constexpr int64_t kWorthALaunch = 1 << 17;  // elements: a copy through tiles takes less time than reading them across
constexpr size_t kMostRowCopies = 2;        // more of them take longer than storing across
constexpr int64_t kShortSide = 8;           // neighbours in memory from which nothing is gained

/// The dim along which neighbours lie beside each other; -1: none, or the address is not affine in all dims.
int contiguous_dim(const Space& space, Expr address) {
  int found = -1;
  for (size_t d = 0; d < space.symbols.size(); ++d) {
    const Expr step = address.contains(space.symbols[d]) ? address.coefficient_of(space.symbols[d]) : Expr();
    if (!step.valid() || step.is_const(0)) return -1;
    if (step.is_const(1)) found = static_cast<int>(d);
  }
  return found;
}

/// Neighbours in memory from the dim on, without those along the dim `other`.
int64_t run_length(State& s, const Space& space, Expr address, int dim, int other) {
  int64_t run = s.hint(space.dims[static_cast<size_t>(dim)], 64);
  for (bool grows = true; grows;) {
    grows = false;
    for (size_t d = 0; d < space.symbols.size() && !grows; ++d) {
      if (static_cast<int>(d) == dim || static_cast<int>(d) == other) continue;
      const int64_t extent = s.hint(space.dims[d], 64);
      grows = extent > 1 && s.hint(address.coefficient_of(space.symbols[d]), 0) == run;
      if (grows) run *= extent;
    }
  }
  return run;
}

/// Dense memory whose dims have the order of the strides of `like`.
struct Dense {
  std::vector<Expr> sizes;
  Expr place;
};

Dense dense_like(State& s, const Space& space, Expr like) {
  std::vector<size_t> order;
  for (size_t d = 0; d < space.dims.size(); ++d) order.push_back(d);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto step = [&](size_t d) { return std::abs(s.hint(like.coefficient_of(space.symbols[d]), 1)); };
    return step(a) > step(b);
  });
  Dense result{{}, s.ctx.constant(0)};
  for (const size_t d : order) {
    result.sizes.push_back(space.dims[d]);
    result.place = result.place * space.dims[d] + space.symbols[d];
  }
  result.place = s.simplify(result.place);
  return result;
}

void emit_row_copy(State& s, const Space& space, const Access& from, BufferId to, Expr place, Expr elements) {
  Space plain = space;
  plain.reduced.assign(space.dims.size(), false);
  plain.has_reduction = false;
  const std::vector<Access> accesses = {from, {place, true, from.dtype, to, false}};
  const NestPlan plan = plan_nest(s, plain, accesses, {});
  loops::Kernel kernel;
  NestBuilder nest(s, kernel);
  nest.substitution = plan.substitution;
  open_outer(s, nest, plan);
  nest.store_at(to, nest.finalize(place), nest.load_element(from.buffer, from.dtype, from.address));
  for (size_t i = 0; i < plan.outer.size(); ++i) nest.close_loop({});
  finish_kernel(s, nest, std::move(kernel), plan, elements);
}

}  // namespace

std::vector<RowCopy> copy_into_row_order(State& s, const Group& group, std::vector<Access>& accesses, Expr elements) {
  const Space& space = *group.space;
  std::vector<RowCopy> copies;
  if (!s.options.gpu || !space.has_reduction || s.hint(elements, 0) < kWorthALaunch) return copies;
  const auto written = std::find_if(accesses.begin(), accesses.end(), [&](const Access& a) {
    return a.store && !a.masked && contiguous_dim(space, a.address) >= 0;
  });
  if (written == accesses.end()) return copies;
  const Access like = *written;
  const int along = contiguous_dim(space, like.address);
  const auto lies_across = [&](const Access& access) {
    if (access.store || access.masked || access.buffer < 0) return false;
    const int lies = contiguous_dim(space, access.address);
    if (lies < 0 || lies == along) return false;
    if (run_length(s, space, access.address, lies, along) < kShortSide) return false;
    if (run_length(s, space, like.address, along, lies) < kShortSide) return false;
    return std::none_of(accesses.begin(), accesses.end(),
                        [&](const Access& other) { return other.store && other.buffer == access.buffer; });
  };
  std::set<std::pair<BufferId, const ExprNode*>> across;
  for (const Access& access : accesses) {
    if (lies_across(access)) across.emplace(access.buffer, access.address.node());
  }
  if (across.size() > kMostRowCopies) return copies;
  for (Access& access : accesses) {
    if (!lies_across(access)) continue;
    auto known = std::find_if(copies.begin(), copies.end(), [&](const RowCopy& copy) {
      return copy.from.buffer == access.buffer && copy.from.address == access.address;
    });
    if (known == copies.end()) {
      const Dense dense = dense_like(s, space, like.address);
      known = copies.insert(copies.end(), {access, add_scratch(s, access.dtype, dense.sizes), dense.place});
      emit_row_copy(s, space, access, known->to, known->place, elements);
    }
    access.buffer = known->to;
    access.address = known->place;
  }
  return copies;
}

}  // namespace tatara::sched
