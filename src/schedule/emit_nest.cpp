// From groups to kernels: the nest is built once over plain dims to see what it accesses, and then with the loops that
// suit these accesses.
#include <algorithm>
#include <utility>

#include "schedule/group_emitter.h"
#include "support/error.h"

namespace tatara::sched {

using loops::LoopKind;

namespace {

constexpr int64_t kKeptBytes = 1 << 18;  // of values kept between the walks over a row
constexpr int64_t kNearBytes = 1 << 14;  // of a row that stays in the nearest cache

void emit_kernel(State& s, int unit, const NestPlan& plan, Expr elements, Phase phase, Partials* partials,
                 const std::vector<RowCopy>& copies = {}) {
  loops::Kernel kernel;
  NestBuilder nest(s, kernel);
  GroupEmitter emitter(s, unit, nest, plan, phase, partials);
  for (const RowCopy& copy : copies) {
    nest.redirect(copy.from.buffer, copy.from.address, copy.to, nest.finalize(copy.place));
  }
  emitter.emit();
  finish_kernel(s, nest, std::move(kernel), plan, elements);
}

std::string first_name(State& s, const Group& group) {
  const Member& m = group.members.front();
  return s.name_of(m.kind == Member::Kind::kStore ? m.value : s.graph.node(m.node).outputs[0]);
}

/// Results of this group that the last walk alone touches, each place once, and along rows: until then their memory is free.
std::vector<ValueId> idle_results(State& s, const Group& group, const std::vector<Access>& accesses, Expr dim) {
  int last = 0;
  for (const Member& m : group.members) last = std::max(last, m.stage);
  std::vector<ValueId> result;
  for (const Member& m : group.members) {
    if (m.stage != last) continue;
    if (m.kind != Member::Kind::kStore) return {};  // may come after the stores
    if (!m.full) continue;
    const BufferId target = s.values[static_cast<size_t>(m.value)].storage->buffer;
    if (target < 0 || s.out.plan.buffers[static_cast<size_t>(target)].home == BufferHome::kInput) continue;
    const auto touches = [&](const Access& a) { return a.buffer == target; };
    const auto store = std::find_if(accesses.begin(), accesses.end(), touches);
    if (std::count_if(accesses.begin(), accesses.end(), touches) != 1 || !store->store || store->masked) continue;
    if (store->address.contains(dim) && store->address.coefficient_of(dim).is_const(1)) result.push_back(m.value);
  }
  return result;
}

/// Only rows of known length that fit beside the data in the cache. Long ones wait in memory that is written anyway.
void keep_between_walks(State& s, const Group& group, const std::vector<Access>& accesses, NestPlan& plan,
                        const std::set<NestPlan::Kept>& candidates) {
  if (plan.inner.size() != 1 || plan.inner[0].kind != LoopKind::kVector || !plan.inner[0].extent.is_const()) return;
  const Expr dim = plan.inner[0].dim;
  std::vector<ValueId> idle = idle_results(s, group, accesses, dim);
  int64_t bytes = 0;
  for (const NestPlan::Kept& key : candidates) {
    const bool along =
        std::any_of(key.second.begin(), key.second.end(), [&](const ExprNode* e) { return Expr(e).contains(dim); });
    if (!along) continue;
    const DType dtype = compute_dtype(s.graph.type(key.first).dtype);
    const int64_t size = plan.inner[0].extent.const_value() * dtype_size(dtype);
    bytes += size;
    if (bytes > kKeptBytes) return;
    plan.kept.insert(key);
    const auto same = [&](ValueId v) { return s.graph.type(v).dtype == dtype; };
    const auto host = size > kNearBytes ? std::find_if(idle.begin(), idle.end(), same) : idle.end();
    if (host != idle.end()) {
      plan.kept_in_result.emplace(key, *host);
      idle.erase(host);
      s.note(s.name_of(key.first), "kept between the walks over a row, in the memory of a result");
    } else {
      s.note(s.name_of(key.first), "kept between the walks over a row");
    }
  }
}

/// Whether all that walks the reduced dims does so once: what is combined later is needed by nobody in the walk.
bool walks_once(const Group& group) {
  return std::all_of(group.members.begin(), group.members.end(),
                     [](const Member& m) { return !m.full || m.stage == 0; });
}

}  // namespace

/// Which of the group's results may lie where an input lies: each element is read, by the last walk at the latest, where its
/// successor is written.
std::vector<std::pair<BufferId, BufferId>> replaceable(State& s, const Group& group,
                                                       const std::vector<Access>& accesses) {
  int last = 0;
  for (const Member& m : group.members) last = std::max(last, m.stage);
  std::vector<std::pair<BufferId, BufferId>> result;
  // A reduction with several results (max.dim) has a walk of its own, which reads again behind the stores.
  const bool walks_behind = std::any_of(group.members.begin(), group.members.end(), [&](const Member& m) {
    return m.kind == Member::Kind::kReduce && m.stage == last &&
           is_custom(s.nodes[static_cast<size_t>(m.node)]->reduction_def());
  });
  if (walks_behind) return result;
  for (const Member& m : group.members) {
    if (m.kind != Member::Kind::kStore || !m.full || m.stage != last) continue;
    const BufferId target = s.values[static_cast<size_t>(m.value)].storage->buffer;
    Expr place;
    bool once = true;
    for (const Access& a : accesses) {
      if (a.buffer != target) continue;
      once = once && a.store && !place.valid();
      place = a.address;
    }
    if (!once || !place.valid()) continue;
    std::set<BufferId> sources;
    for (const Access& a : accesses) {
      if (!a.store && a.buffer >= 0) sources.insert(a.buffer);
    }
    for (const Access& a : accesses) {
      const bool same =
          !a.store && !a.masked && a.address == place && dtype_size(a.dtype) == dtype_size(s.graph.type(m.value).dtype);
      if (!same) sources.erase(a.buffer);
    }
    for (const BufferId source : sources) result.emplace_back(target, source);
  }
  return result;
}

namespace {

constexpr int64_t kMostCopies = 4;

/// On a GPU, a dim of a few elements over which nothing is reduced, while most of what is read, and computed, is the same for all of
/// them: a thread does them side by side. It loses its loop.
void copy_narrow_dim(State& s, const Group& group, const std::vector<Access>& accesses, NestPlan& plan) {
  if (!s.options.gpu || !group.space->has_reduction || plan.inner.empty() || plan.tile) return;
  const bool plain = std::all_of(group.members.begin(), group.members.end(), [&](const Member& m) {
    return m.kind == Member::Kind::kReduce && m.stage == 0 &&
           !is_custom(s.nodes[static_cast<size_t>(m.node)]->reduction_def());
  });
  if (!plain) return;
  int64_t rows = 1;
  for (const LoopSpec& loop : plan.outer) {
    if (loop.kind != LoopKind::kParallel) return;
    rows *= std::max<int64_t>(s.hint(loop.extent, 64), 1);
  }
  const Space& space = *group.space;
  const auto narrow = [&](const LoopSpec& loop) {
    if (!loop.dim.valid() || !loop.extent.is_const()) return false;
    const int64_t width = loop.extent.const_value();
    const auto d = std::find(space.symbols.begin(), space.symbols.end(), loop.dim) - space.symbols.begin();
    if (static_cast<size_t>(d) == space.symbols.size() || !(space.dims[static_cast<size_t>(d)] == loop.extent))
      return false;
    if (width < 2 || width > kMostCopies || rows / width < 2 * s.options.gpu->multiprocessors) return false;
    // Read along the reduced dims, but not along this one.
    return std::any_of(accesses.begin(), accesses.end(), [&](const Access& a) {
      const bool along = std::any_of(plan.inner.begin(), plan.inner.end(),
                                     [&](const LoopSpec& in) { return in.dim.valid() && a.address.contains(in.dim); });
      return !a.store && along && !a.address.contains(loop.dim);
    });
  };
  const auto found = std::find_if(plan.outer.begin(), plan.outer.end(), narrow);
  if (found == plan.outer.end()) return;
  plan.copies = {{found->dim, found->extent.const_value()}};
  plan.outer.erase(found);
}

}  // namespace

void emit_group(State& s, int unit) {
  const Group& group = s.units[static_cast<size_t>(unit)].group;
  if (group.members.empty()) return;
  loops::Kernel scratch;
  NestBuilder dry(s, scratch);
  const Space& space = *group.space;
  const NestPlan plain = plain_nest(space);
  GroupEmitter trial(s, unit, dry, plain);
  trial.emit();
  Expr elements = s.ctx.constant(1);
  for (const Expr e : space.dims) elements = elements * e;
  const std::vector<RowCopy> copies = copy_into_row_order(s, group, dry.accesses, elements);
  NestPlan plan = plan_nest(s, space, dry.accesses, dry.index_uses, true, product_lanes(s, group));
  if (auto whole = whole_blocks(s, group, dry.accesses, dry.index_uses)) {
    plan = std::move(*whole);
  } else if (auto apart = parts_side_by_side(s, group, dry.accesses, dry.index_uses, plan, dry.work.operations)) {
    plan = std::move(*apart);
  }
  if (space.has_reduction && !s.options.gpu) keep_between_walks(s, group, dry.accesses, plan, trial.needed_twice());
  const bool tiled = space.has_reduction && tile_products(s, group, dry.accesses, plan);
  const bool thin = tiled || (space.has_reduction && share_weight(s, group, plan));
  const bool may_split = space.has_reduction && walks_once(group) && !thin;
  const auto chunked = may_split ? split_reduction(s, plan) : std::nullopt;
  if (!chunked) {
    if (!thin) copy_narrow_dim(s, group, dry.accesses, plan);
    share_rows(s, group, dry.accesses, dry.work.operations, plan);
    const bool again =
        std::any_of(plan.copies.begin(), plan.copies.end(), [](const NestPlan::Copies& c) { return c.last.valid(); });
    if (!plan.tile && !s.options.gpu && !again) {
      auto pairs = replaceable(s, group, dry.accesses);
      for (const auto& [key, host] : plan.kept_in_result) {
        const BufferId taken = s.values[static_cast<size_t>(host)].storage->buffer;
        std::erase_if(pairs, [&](const auto& pair) { return pair.first == taken; });
      }
      for (const auto& [target, source] : pairs) s.in_place.push_back({s.out.plan.steps.size(), target, source});
    }
    emit_kernel(s, unit, plan, elements, Phase::kWhole, nullptr, copies);
    return;
  }
  s.note(first_name(s, group),
         str_cat("split into ", chunked->chunks.extent.str(), " chunks: too few rows for the threads"));
  Partials partials{chunked->chunks, {}, {}};
  for (const LoopSpec& loop : plan.outer) {
    if (loop.kind != LoopKind::kParallel) partials.columns.push_back(loop.var);
  }
  emit_kernel(s, unit, chunked->nest, elements, Phase::kPartial, &partials, copies);
  Expr rows = chunked->chunks.extent;
  for (const LoopSpec& loop : plan.outer) rows = rows * loop.extent;
  NestPlan last = plan;
  last.inner.clear();
  if (s.options.gpu) {
    // The threads of a row share the chunks of a column.
    for (LoopSpec& loop : last.outer) loop.kind = LoopKind::kParallel;
  }
  emit_kernel(s, unit, last, rows, Phase::kFinal, &partials);
}

}  // namespace tatara::sched
