#include "schedule/group_emitter.h"

#include "support/error.h"

namespace tatara::sched {

using loops::LoopKind;

namespace {

constexpr double kDear = 8;  // computing again costs more than a trip to the nearest cache
constexpr size_t kPlaceSymbols = 220;

}  // namespace

template <typename Fn>
void GroupEmitter::for_each_copy(Fn&& fn) {
  for (copy_ = 0; copy_ < plan_.side_by_side(); ++copy_) fn();
  copy_ = 0;
}

template <typename Fn>
std::vector<ScalarId> GroupEmitter::fold_in(const std::vector<const Member*>& folds, const std::vector<ScalarId>& now,
                                            Fn&& after) {
  std::vector<ScalarId> next;
  size_t at = 0;
  for (const Member* m : folds) {
    const size_t n = node_of(*m).reduction_def().dtypes.size();
    for_each_copy([&] {
      const std::vector<ScalarId> merged = after(*m, std::span(now).subspan(at, n));
      next.insert(next.end(), merged.begin(), merged.end());
      at += n;
    });
  }
  return next;
}

GroupEmitter::GroupEmitter(State& s, int unit, NestBuilder& nest, const NestPlan& plan, Phase phase, Partials* partials)
    : s_(s),
      unit_(unit),
      group_(s.units[static_cast<size_t>(unit)].group),
      nest_(nest),
      plan_(plan),
      phase_(phase),
      partials_(partials) {
  nest_.access = [this](ValueId v, const std::vector<Expr>& indices, ScalarId mask) { return read(v, indices, mask); };
  nest_.substitution = plan.substitution;
}

void GroupEmitter::emit() {
  open_outer(s_, nest_, plan_);
  int last = 0;
  for (const Member& m : group_.members) last = std::max(last, m.stage);
  for (stage_ = 0; stage_ <= last; ++stage_) {
    std::vector<const Member*> stores;
    std::vector<const Member*> folds;
    std::vector<const Member*> customs;
    for (const Member& m : group_.members) {
      if (m.stage != stage_) continue;
      if (m.kind == Member::Kind::kStore) {
        if (m.full) {
          if (phase_ != Phase::kFinal) stores.push_back(&m);
        } else if (phase_ != Phase::kPartial) {
          for_each_copy([&] { store_value(m); });
        }
      } else if (phase_ == Phase::kFinal) {
        gather(m);
      } else {
        (is_custom(node_of(m).reduction_def()) ? customs : folds).push_back(&m);
      }
    }
    if (!stores.empty() || !folds.empty()) walk(folds, stores);
    for (const Member* m : customs) walk({m}, {});
  }
  for (size_t i = 0; i < plan_.outer.size(); ++i) nest_.close_loop({});
}

std::set<GroupEmitter::Kept> GroupEmitter::needed_twice() const {
  std::set<Kept> result;
  for (const auto& [key, walks] : seen_) {
    if (walks.first < walks.second) result.insert(key);
  }
  return result;
}

std::optional<ScalarId> GroupEmitter::read(ValueId v, const std::vector<Expr>& indices, ScalarId mask) {
  if (mask == loops::kNoScalar) {
    if (const auto kept = kept_between_walks(v, indices)) return kept;
  }
  return read_memory(v, indices, mask);
}

std::optional<ScalarId> GroupEmitter::kept_between_walks(ValueId v, const std::vector<Expr>& indices) {
  const ValueInfo& info = s_.values[static_cast<size_t>(v)];
  const LoweredNode* node = s_.producer(v);
  if (node == nullptr || node->kind != LoweredNode::Kind::kElement || info.cost < kDear) return std::nullopt;
  if (info.root && (info.unit != unit_ || info.stored)) return std::nullopt;
  if (!computing_.empty() && computing_.back() == v) return std::nullopt;
  Kept key{v, {}};
  for (const Expr e : indices) key.second.push_back(s_.simplify(e).node());
  if (computing_.empty()) {
    auto [at, inserted] = seen_.emplace(key, std::pair{stage_, stage_});
    at->second.second = stage_;
  }
  const bool keep = plan_.kept.contains(key);
  const auto place = [&] { return plan_.inner.back().var; };
  if (keep) {
    const auto found = kept_.find(key);
    if (found != kept_.end() && found->second.second < stage_) {
      if (const Member* host = host_of(key)) {
        const Storage& storage = *s_.values[static_cast<size_t>(host->value)].storage;
        return nest_.load(host->value, storage, *index_map(s_, *group_.space, *host->sizes, true), loops::kNoScalar,
                          loops::kNoScalar);
      }
      return nest_.load_at(found->second.first, compute_dtype(s_.graph.type(v).dtype), place());
    }
    if (found != kept_.end()) return std::nullopt;
  }
  computing_.push_back(v);
  const ScalarId x = nest_.eval(v, indices);
  computing_.pop_back();
  const Member* host = keep ? host_of(key) : nullptr;
  if (host != nullptr) {
    const Storage& storage = *s_.values[static_cast<size_t>(host->value)].storage;
    kept_[key] = {storage.buffer, stage_};
    nest_.store(host->value, storage, *index_map(s_, *group_.space, *host->sizes, true), x);
  } else if (keep) {
    const BufferId local = nest_.add_local(nest_.dtype(x), plan_.inner.back().extent.const_value());
    kept_[key] = {local, stage_};
    nest_.store_at(local, place(), x);
  }
  return x;
}

const Member* GroupEmitter::host_of(const Kept& key) const {
  const auto found = plan_.kept_in_result.find(key);
  if (found == plan_.kept_in_result.end()) return nullptr;
  const auto member = std::find_if(group_.members.begin(), group_.members.end(), [&](const Member& m) {
    return m.kind == Member::Kind::kStore && m.value == found->second;
  });
  return &*member;
}

std::optional<ScalarId> GroupEmitter::read_memory(ValueId v, const std::vector<Expr>& indices, ScalarId mask) {
  const ValueInfo& info = s_.values[static_cast<size_t>(v)];
  if (!info.root || v == current_) return std::nullopt;
  if (info.unit == unit_) {
    const LoweredNode* node = s_.producer(v);
    TATARA_CHECK(node != nullptr && node->kind != LoweredNode::Kind::kReduction, "reduction ", s_.name_of(v),
                 " is not at hand");
    const auto computed = stored_in_.find(v);
    const bool dear = info.cost > 2 || info.loads > 1;
    if (computed == stored_in_.end() || computed->second >= stage_ || !dear) return std::nullopt;
  }
  TATARA_CHECK(info.storage.has_value(), s_.name_of(v), " has no memory");
  return nest_.load(v, *info.storage, indices, mask, loops::kNoScalar);
}

ScalarId GroupEmitter::value_of(const Member& m) {
  current_ = m.value;
  const ScalarId x = nest_.eval(m.value, index_of(m));
  current_ = kNoValue;
  return x;
}

Expr GroupEmitter::place_of(const NestPlan::Copies& c, int64_t k) const {
  const Expr copy = s_.ctx.constant(k);
  // The loop's variable: the dim itself may stand for others with it, and is thought to be shorter.
  const auto in_loop = [&] {
    const Expr place = c.follow ? plan_.substitution.at(c.dim) + copy : copy;
    return c.last.valid() ? s_.ctx.min(place, c.last) : place;
  };
  if (!c.merged.valid()) return c.last.valid() ? in_loop() : c.follow ? c.dim + copy : copy;
  // Of the dim alone: what holds for all of its elements must fold here as it did where the dims were merged.
  Expr& symbol = places_[{c.dim.node(), k}];
  if (!symbol.valid()) {
    symbol = s_.pooled_symbol(c.merged, kPlaceSymbols + places_.size());
    nest_.substitution[symbol] = in_loop();
  }
  return symbol;
}

std::vector<Expr> GroupEmitter::index_of(const Member& m) const {
  std::vector<Expr> index = *index_map(s_, *group_.space, *m.sizes, m.full || m.kind == Member::Kind::kReduce);
  if (plan_.copies.empty()) return index;
  ExprMap place;
  int64_t rest = copy_;
  for (const NestPlan::Copies& c : plan_.copies) {
    place[c.dim] = place_of(c, rest % c.count);
    rest /= c.count;
  }
  for (Expr& e : index) e = s_.simplify(s_.ctx.substitute(e, place));
  return index;
}

void GroupEmitter::store(const Member& m, ScalarId x) {
  const ValueInfo& info = s_.values[static_cast<size_t>(m.value)];
  nest_.store(m.value, *info.storage, index_of(m), x);
  // What one thread of a row stores, the others do not read back.
  if (m.full || !s_.options.gpu) stored_in_[m.value] = stage_;
}

loops::Carried GroupEmitter::carried_from(const LoweredNode& node, size_t i, ScalarId init) {
  return {.dtype = node.reduction_def().dtypes[i],
          .init = init,
          .arg = -1,
          .next = -1,
          .result = -1,
          .combine = node.reduction_def().combine[i]};
}

void GroupEmitter::walk(const std::vector<const Member*>& folds, const std::vector<const Member*>& stores) {
  std::vector<ScalarId> identity;
  std::vector<loops::Carried> carried;
  for (const Member* m : folds) {
    const LoweredNode& node = node_of(*m);
    NodeBuilder builder(nest_, node, loops::kNoScalar);
    const std::vector<ScalarId> init = node.reduction_def().init(builder);
    for_each_copy([&] {
      for (size_t i = 0; i < init.size(); ++i) {
        identity.push_back(init[i]);
        carried.push_back(carried_from(node, i, init[i]));
      }
    });
  }
  std::vector<std::vector<ScalarId>> starts;  // carried values at the start of an iteration, per level
  std::vector<ScalarId> now = identity;
  starts.push_back(now);
  for (size_t level = 0; level < plan_.inner.size(); ++level) {
    const LoopSpec& loop = plan_.inner[level];
    // Lanes of a vector loop start from the identity; what came before is combined after it.
    const bool fresh = loop.kind == LoopKind::kVector;
    for (size_t i = 0; i < carried.size(); ++i) carried[i].init = fresh ? identity[i] : now[i];
    nest_.open_loop(loop.var, loop.extent, loop.kind, carried);
    now = nest_.carried_args();
    starts.push_back(now);
  }
  now = fold_in(folds, now, [&](const Member& m, std::span<const ScalarId> before) {
    const LoweredNode& node = node_of(m);
    NodeBuilder builder(nest_, node, loops::kNoScalar);
    const SourceLocation* const outer = std::exchange(nest_.location, &node.node().location);
    if (node.reduction_def().fold) {
      auto after = node.reduction_def().fold(builder, before, index_of(m));
      nest_.location = outer;
      return after;
    }
    auto parts = node.reduction_def().element(builder, index_of(m));
    nest_.location = outer;
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = nest_.cast(parts[i], node.reduction_def().dtypes[i]);
    return combine(nest_, node, before, parts);
  });
  // All values before the first store: one of them may go into an input that another one reads.
  std::vector<ScalarId> stored;
  for_each_copy([&] {
    for (const Member* m : stores) stored.push_back(value_of(*m));
  });
  size_t next_stored = 0;
  for_each_copy([&] {
    for (const Member* m : stores) store(*m, stored[next_stored++]);
  });
  for (size_t level = plan_.inner.size(); level-- > 0;) {
    std::unique_ptr<loops::CombineFn> fn;
    if (!folds.empty() && is_custom(node_of(*folds[0]).reduction_def())) fn = combine_fn(nest_, node_of(*folds[0]));
    const std::vector<ScalarId> results = nest_.close_loop(now, std::move(fn));
    if (plan_.inner[level].kind == LoopKind::kVector && level > 0) {
      size_t at = 0;
      now = fold_in(folds, starts[level], [&](const Member& m, std::span<const ScalarId> before) {
        const size_t n = node_of(m).reduction_def().dtypes.size();
        std::vector<ScalarId> part(results.begin() + static_cast<std::ptrdiff_t>(at),
                                   results.begin() + static_cast<std::ptrdiff_t>(at + n));
        at += n;
        return combine(nest_, node_of(m), before, part);
      });
    } else {
      now = results;
    }
  }
  size_t at = 0;
  for (const Member* m : folds) {
    const size_t n = node_of(*m).reduction_def().dtypes.size();
    for_each_copy([&] {
      const auto acc = std::span(now).subspan(at, n);
      if (phase_ == Phase::kPartial) {
        deposit(*m, acc);
      } else {
        finish(*m, acc);
      }
      at += n;
    });
  }
}

Expr GroupEmitter::partial_address(std::vector<Expr>& sizes) const {
  Expr address = s_.ctx.constant(0);
  const auto add = [&](const LoopSpec& loop) {
    const Expr extent = loop.bound.valid() ? loop.bound : loop.extent;
    address = address * extent + loop.var;
    sizes.push_back(extent);
  };
  for (const LoopSpec& loop : plan_.outer) {
    if (!partials_->is_column(loop.var) && !(loop.var == partials_->chunks.var)) add(loop);
  }
  add(partials_->chunks);
  for (const LoopSpec& loop : plan_.outer) {
    if (partials_->is_column(loop.var)) add(loop);
  }
  return s_.simplify(address);
}

void GroupEmitter::deposit(const Member& m, std::span<const ScalarId> acc) {
  std::vector<Expr> sizes;
  const Expr address = partial_address(sizes);
  nest_.fused(node_of(m));
  for (size_t i = 0; i < acc.size(); ++i) {
    const DType dtype = node_of(m).reduction_def().dtypes[i];
    const auto [found, inserted] = partials_->buffers.try_emplace({m.node, i}, -1);
    if (inserted) found->second = add_scratch(s_, dtype, sizes);
    nest_.store_at(found->second, address, nest_.cast(acc[i], dtype));
  }
}

void GroupEmitter::gather(const Member& m) {
  const LoweredNode& node = node_of(m);
  NodeBuilder builder(nest_, node, loops::kNoScalar);
  const std::vector<ScalarId> init = node.reduction_def().init(builder);
  std::vector<loops::Carried> carried;
  for (size_t i = 0; i < init.size(); ++i) {
    carried.push_back(carried_from(node, i, init[i]));
  }
  std::vector<Expr> sizes;
  const Expr address = partial_address(sizes);
  // On a GPU the threads of a row share the chunks, where the loop around is not theirs.
  const bool shared = s_.options.gpu && std::all_of(plan_.outer.begin(), plan_.outer.end(), [](const LoopSpec& loop) {
                        return loop.kind == LoopKind::kParallel;
                      });
  nest_.open_loop(partials_->chunks.var, partials_->chunks.extent, shared ? LoopKind::kVector : LoopKind::kSerial,
                  carried);
  std::vector<ScalarId> parts;
  for (size_t i = 0; i < init.size(); ++i) {
    parts.push_back(nest_.load_at(partials_->buffers.at({m.node, i}), node.reduction_def().dtypes[i], address));
  }
  const std::vector<ScalarId> args = nest_.carried_args();
  const std::vector<ScalarId> next = combine(nest_, node, args, parts);
  std::unique_ptr<loops::CombineFn> fn;
  if (is_custom(node.reduction_def())) fn = combine_fn(nest_, node);
  finish(m, nest_.close_loop(next, std::move(fn)));
}

void GroupEmitter::finish(const Member& m, std::span<const ScalarId> acc) {
  const LoweredNode& node = node_of(m);
  const std::vector<Expr> out = reduced_indices(node, index_of(m));
  std::vector<ScalarId> results(acc.begin(), acc.end());
  if (node.reduction_def().finish) {
    NodeBuilder builder(nest_, node, loops::kNoScalar);
    results = node.reduction_def().finish(builder, acc, out);
  }
  nest_.fused(node);
  for (size_t i = 0; i < node.node().outputs.size(); ++i) {
    const ValueId v = node.node().outputs[i];
    const ValueInfo& info = s_.values[static_cast<size_t>(v)];
    if (!info.needed) continue;
    const ScalarId x = nest_.round(results[i], s_.graph.type(v).dtype);
    nest_.remember(v, out, x);
    if (info.stored) nest_.store(v, *info.storage, out, x);
  }
}

}  // namespace tatara::sched
