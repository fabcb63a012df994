// From groups to kernels: the nest is built once over plain dims to see what it accesses, and then with the loops that
// suit these accesses.
#include <algorithm>
#include <utility>

#include "schedule/emit.h"
#include "support/error.h"

namespace tatara::sched {

using loops::Combine;
using loops::LoopKind;

namespace {

constexpr double kDear = 8;              // computing again costs more than a trip to the nearest cache
constexpr int64_t kKeptBytes = 1 << 18;  // of values kept between the walks over a row
constexpr int64_t kNearBytes = 1 << 14;  // of a row that stays in the nearest cache

}  // namespace

ScalarOp combine_op(Combine combine) {
  switch (combine) {
    case Combine::kAdd: return ScalarOp::kAdd;
    case Combine::kMul: return ScalarOp::kMul;
    case Combine::kMin: return ScalarOp::kMin;
    case Combine::kMax: return ScalarOp::kMax;
    case Combine::kAnd: return ScalarOp::kAnd;
    case Combine::kOr: return ScalarOp::kOr;
    case Combine::kXor: return ScalarOp::kXor;
    case Combine::kNone:
    case Combine::kCustom: break;
  }
  TATARA_UNREACHABLE("combine ", static_cast<int>(combine));
}

bool is_custom(const ReductionDef& def) {
  return std::any_of(def.combine.begin(), def.combine.end(),
                     [](Combine c) { return c == Combine::kCustom || c == Combine::kNone; });
}

std::vector<ScalarId> combine(NestBuilder& nest, const LoweredNode& node, std::span<const ScalarId> a,
                              std::span<const ScalarId> b) {
  const ReductionDef& def = node.reduction_def;
  NodeBuilder builder(nest, node, loops::kNoScalar);
  if (def.merge) return def.merge(builder, a, b);
  std::vector<ScalarId> result;
  for (size_t i = 0; i < def.combine.size(); ++i) {
    result.push_back(nest.emit(make_scalar(combine_op(def.combine[i]), def.dtypes[i], {a[i], b[i]})));
  }
  return result;
}

std::unique_ptr<loops::CombineFn> combine_fn(NestBuilder& nest, const LoweredNode& node) {
  auto fn = std::make_unique<loops::CombineFn>();
  nest.open_isolated();
  for (const DType dtype : node.reduction_def.dtypes) fn->left.push_back(nest.new_scalar(dtype));
  for (const DType dtype : node.reduction_def.dtypes) fn->right.push_back(nest.new_scalar(dtype));
  fn->result = combine(nest, node, fn->left, fn->right);
  fn->body = std::make_unique<loops::Block>(nest.close_isolated());
  return fn;
}

namespace {

/// What lies across the vector loop comes through tiles in local memory.
void load_tiles(State& s, NestBuilder& nest, const NestPlan::Tile& tile) {
  ExprContext& ctx = s.ctx;
  const ExprMap corner{{tile.row, ctx.constant(0)}, {tile.lane, ctx.constant(0)}};
  for (const Access& access : tile.accesses) {
    const int64_t length = s.options.gpu ? gpu_tile_pitch(tile.most_lanes, access.dtype) : tile.most_lanes;
    const BufferId local = nest.add_local(access.dtype, tile.most_rows * length);
    loops::Transpose copy;
    copy.from = nest.buffer_arg(access.buffer, false);
    copy.from_index = s.simplify(ctx.substitute(nest.finalize(access.address), corner));
    copy.from_stride = access.address.coefficient_of(tile.lane_dim);
    copy.to = nest.buffer_arg(local, true);
    copy.to_index = ctx.constant(0);
    copy.to_stride = ctx.constant(length);
    copy.rows = tile.lanes;
    copy.columns = tile.rows;
    nest.transpose(copy);
    nest.redirect(access.buffer, access.address, local, tile.row * ctx.constant(length) + tile.lane);
  }
}

}  // namespace

void open_outer(State& s, NestBuilder& nest, const NestPlan& plan) {
  for (const LoopSpec& loop : plan.outer) {
    if (plan.tile && loop.var == plan.tile->row) load_tiles(s, nest, *plan.tile);
    nest.open_loop(loop.var, loop.extent, loop.kind);
  }
}

void finish_kernel(State& s, NestBuilder& nest, loops::Kernel kernel, const NestPlan& plan, Expr elements) {
  kernel.body = nest.take_body();
  PlanKernel info;
  for (const std::string& op : nest.fused_ops) {
    if (info.name.size() > 60) break;
    if (op == "cast" && nest.fused_ops.size() > 1) continue;
    std::string word = op;
    std::replace(word.begin(), word.end(), '.', '_');
    info.name += (info.name.empty() ? "" : "_") + word;
  }
  if (info.name.empty()) info.name = "copy";
  kernel.name = info.name;
  info.fused_ops = nest.fused_ops;
  info.nodes = nest.fused_nodes;
  info.fault_sites = nest.fault_sites;
  KernelLaunch launch;
  launch.kernel = static_cast<int>(s.out.kernels.size());
  for (const BufferId b : nest.buffer_ids) {
    if (b >= 0) launch.buffers.push_back(b);
  }
  for (size_t b = 0; b < kernel.buffers.size(); ++b) {
    const loops::BufferArg& arg = kernel.buffers[b];
    if (arg.kind == loops::ArgKind::kScratch) continue;
    const int64_t bytes = s.hint(arg.numel, 0) * dtype_size(arg.dtype);
    if (arg.kind != loops::ArgKind::kOutput) info.bytes_read += bytes;
    if (arg.kind != loops::ArgKind::kInput) info.bytes_written += bytes;
  }
  launch.parallel_iterations = parallel_iterations(s, plan);
  launch.work = s.simplify(elements * s.ctx.constant(std::max(1, nest.num_ops)));
  kernel = detach_kernel(s, std::move(kernel), launch.sizes);
  if (s.options.gpu) {
    kernel.gpu = gpu_mapping(kernel, *s.options.gpu, s.hint(launch.parallel_iterations, 64));
    Expr lanes;
    for (const LoopSpec& loop : plan.outer) {
      if (loop.kind == LoopKind::kVector) lanes = loop.extent;
    }
    launch.gpu_threads = kernel.gpu.threads;
    launch.gpu_blocks = gpu_blocks(s, kernel.gpu, launch.parallel_iterations, lanes);
  }
  s.out.kernels.push_back(std::move(kernel));
  s.out.plan.kernels.push_back(std::move(info));
  s.out.plan.steps.emplace_back(std::move(launch));
}

namespace {

/// A reduction in two kernels: the first one folds chunks into partial results in memory, the second one combines these.
enum class Phase : uint8_t { kWhole, kPartial, kFinal };

/// Memory of the partial results: a buffer per reduction and accumulator, over the rows and the chunks.
struct Partials {
  LoopSpec chunks;
  std::vector<Expr> columns;  // variables of the loops inside of the chunks, whose elements lie beside each other
  bool is_column(Expr var) const { return std::find(columns.begin(), columns.end(), var) != columns.end(); }
  std::map<std::pair<NodeId, size_t>, BufferId> buffers;
};

class GroupEmitter {
 public:
  using Kept = NestPlan::Kept;
  GroupEmitter(State& s, int unit, NestBuilder& nest, const NestPlan& plan, Phase phase = Phase::kWhole,
               Partials* partials = nullptr)
      : s_(s),
        unit_(unit),
        group_(s.units[static_cast<size_t>(unit)].group),
        nest_(nest),
        plan_(plan),
        phase_(phase),
        partials_(partials) {
    nest_.access = [this](ValueId v, const std::vector<Expr>& indices, ScalarId mask) {
      return read(v, indices, mask);
    };
    nest_.substitution = plan.substitution;
  }

  void emit() {
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
            store_value(m);
          }
        } else if (phase_ == Phase::kFinal) {
          gather(m);
        } else {
          (is_custom(node_of(m).reduction_def) ? customs : folds).push_back(&m);
        }
      }
      if (!stores.empty() || !folds.empty()) walk(folds, stores);
      for (const Member* m : customs) walk({m}, {});
    }
    for (size_t i = 0; i < plan_.outer.size(); ++i) nest_.close_loop({});
  }

  /// Dear values that two walks of the row need.
  std::set<Kept> needed_twice() const {
    std::set<Kept> result;
    for (const auto& [key, walks] : seen_) {
      if (walks.first < walks.second) result.insert(key);
    }
    return result;
  }

 private:
  const LoweredNode& node_of(const Member& m) const { return *s_.nodes[static_cast<size_t>(m.node)]; }

  std::optional<ScalarId> read(ValueId v, const std::vector<Expr>& indices, ScalarId mask) {
    if (mask == loops::kNoScalar) {
      if (const auto kept = kept_between_walks(v, indices)) return kept;
    }
    return read_memory(v, indices, mask);
  }

  /// A dear value that several walks over a row need: computed in the first, kept in memory of the thread.
  std::optional<ScalarId> kept_between_walks(ValueId v, const std::vector<Expr>& indices) {
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
          return nest_.load(host->value, storage, *index_map(s_, group_, host->sizes, true), loops::kNoScalar,
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
      nest_.store(host->value, storage, *index_map(s_, group_, host->sizes, true), x);
    } else if (keep) {
      const BufferId local = nest_.add_local(nest_.dtype(x), plan_.inner.back().extent.const_value());
      kept_[key] = {local, stage_};
      nest_.store_at(local, place(), x);
    }
    return x;
  }

  /// The store of the result whose memory keeps the value until then; null: none.
  const Member* host_of(const Kept& key) const {
    const auto found = plan_.kept_in_result.find(key);
    if (found == plan_.kept_in_result.end()) return nullptr;
    const auto member = std::find_if(group_.members.begin(), group_.members.end(), [&](const Member& m) {
      return m.kind == Member::Kind::kStore && m.value == found->second;
    });
    return &*member;
  }

  std::optional<ScalarId> read_memory(ValueId v, const std::vector<Expr>& indices, ScalarId mask) {
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

  ScalarId value_of(const Member& m) {
    current_ = m.value;
    const ScalarId x = nest_.eval(m.value, index_of(m));
    current_ = kNoValue;
    return x;
  }

  /// The element of a member's space that an iteration works on: of the present copy, where a thread has several.
  std::vector<Expr> index_of(const Member& m) const {
    std::vector<Expr> index = *index_map(s_, group_, m.sizes, m.full || m.kind == Member::Kind::kReduce);
    if (plan_.copies == 1) return index;
    const Expr copy = s_.ctx.constant(copy_);
    const ExprMap place{{plan_.copied, plan_.copies_follow ? plan_.copied + copy : copy}};
    for (Expr& e : index) e = s_.simplify(s_.ctx.substitute(e, place));
    return index;
  }

  template <typename Fn>
  void for_each_copy(Fn&& fn) {
    for (copy_ = 0; copy_ < plan_.copies; ++copy_) fn();
    copy_ = 0;
  }

  void store(const Member& m, ScalarId x) {
    const ValueInfo& info = s_.values[static_cast<size_t>(m.value)];
    nest_.store(m.value, *info.storage, index_of(m), x);
    // What one thread of a row stores, the others do not read back.
    if (m.full || !s_.options.gpu) stored_in_[m.value] = stage_;
  }

  void store_value(const Member& m) { store(m, value_of(m)); }

  /// The i-th value that a reduction carries, before its first element.
  static loops::Carried carried_from(const LoweredNode& node, size_t i, ScalarId init) {
    return {.dtype = node.reduction_def.dtypes[i],
            .init = init,
            .arg = -1,
            .next = -1,
            .result = -1,
            .combine = node.reduction_def.combine[i]};
  }

  /// One pass over the reduced dims (or none, where nothing is reduced).
  void walk(const std::vector<const Member*>& folds, const std::vector<const Member*>& stores) {
    std::vector<ScalarId> identity;
    std::vector<loops::Carried> carried;
    for (const Member* m : folds) {
      const LoweredNode& node = node_of(*m);
      NodeBuilder builder(nest_, node, loops::kNoScalar);
      const std::vector<ScalarId> init = node.reduction_def.init(builder);
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
    now = fold_in(folds, now, [&](const Member& m) {
      const LoweredNode& node = node_of(m);
      NodeBuilder builder(nest_, node, loops::kNoScalar);
      const std::string outer = std::exchange(nest_.location, node.node().location.str());
      auto parts = node.reduction_def.element(builder, index_of(m));
      nest_.location = outer;
      for (size_t i = 0; i < parts.size(); ++i) parts[i] = nest_.cast(parts[i], node.reduction_def.dtypes[i]);
      return parts;
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
      if (!folds.empty() && is_custom(node_of(*folds[0]).reduction_def)) fn = combine_fn(nest_, node_of(*folds[0]));
      const std::vector<ScalarId> results = nest_.close_loop(now, std::move(fn));
      if (plan_.inner[level].kind == LoopKind::kVector && level > 0) {
        size_t at = 0;
        now = fold_in(folds, starts[level], [&](const Member& m) {
          const size_t n = node_of(m).reduction_def.dtypes.size();
          std::vector<ScalarId> part(results.begin() + static_cast<std::ptrdiff_t>(at),
                                     results.begin() + static_cast<std::ptrdiff_t>(at + n));
          at += n;
          return part;
        });
      } else {
        now = results;
      }
    }
    size_t at = 0;
    for (const Member* m : folds) {
      const size_t n = node_of(*m).reduction_def.dtypes.size();
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

  /// Where a chunk's part of the result lies: rows, then chunks, then the columns of a vector loop.
  Expr partial_address(std::vector<Expr>& sizes) const {
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

  void deposit(const Member& m, std::span<const ScalarId> acc) {
    std::vector<Expr> sizes;
    const Expr address = partial_address(sizes);
    nest_.fused(node_of(m));
    for (size_t i = 0; i < acc.size(); ++i) {
      const DType dtype = node_of(m).reduction_def.dtypes[i];
      const auto [found, inserted] = partials_->buffers.try_emplace({m.node, i}, -1);
      if (inserted) found->second = add_scratch(s_, dtype, sizes);
      nest_.store_at(found->second, address, nest_.cast(acc[i], dtype));
    }
  }

  /// The second kernel's share of a reduction: all chunks combined.
  void gather(const Member& m) {
    const LoweredNode& node = node_of(m);
    NodeBuilder builder(nest_, node, loops::kNoScalar);
    const std::vector<ScalarId> init = node.reduction_def.init(builder);
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
      parts.push_back(nest_.load_at(partials_->buffers.at({m.node, i}), node.reduction_def.dtypes[i], address));
    }
    const std::vector<ScalarId> args = nest_.carried_args();
    const std::vector<ScalarId> next = combine(nest_, node, args, parts);
    std::unique_ptr<loops::CombineFn> fn;
    if (is_custom(node.reduction_def)) fn = combine_fn(nest_, node);
    finish(m, nest_.close_loop(next, std::move(fn)));
  }

  template <typename Fn>
  std::vector<ScalarId> fold_in(const std::vector<const Member*>& folds, const std::vector<ScalarId>& now,
                                Fn&& parts_of) {
    std::vector<ScalarId> next;
    size_t at = 0;
    for (const Member* m : folds) {
      for_each_copy([&] {
        const std::vector<ScalarId> parts = parts_of(*m);
        const auto merged = combine(nest_, node_of(*m), std::span(now).subspan(at, parts.size()), parts);
        next.insert(next.end(), merged.begin(), merged.end());
        at += parts.size();
      });
    }
    return next;
  }

  void finish(const Member& m, std::span<const ScalarId> acc) {
    const LoweredNode& node = node_of(m);
    const std::vector<Expr> out = reduced_indices(node, index_of(m));
    std::vector<ScalarId> results(acc.begin(), acc.end());
    if (node.reduction_def.finish) {
      NodeBuilder builder(nest_, node, loops::kNoScalar);
      results = node.reduction_def.finish(builder, acc, out);
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

  State& s_;
  int unit_;
  const Group& group_;
  NestBuilder& nest_;
  const NestPlan& plan_;
  const Phase phase_;
  Partials* const partials_;
  int stage_ = 0;
  int64_t copy_ = 0;
  ValueId current_ = kNoValue;
  std::vector<ValueId> computing_;
  std::map<Kept, std::pair<int, int>> seen_;       // dear values: the first and the last walk that needs them
  std::map<Kept, std::pair<BufferId, int>> kept_;  // where, and since which walk
  std::map<ValueId, int> stored_in_;
};

void emit_kernel(State& s, int unit, const NestPlan& plan, Expr elements, Phase phase, Partials* partials) {
  loops::Kernel kernel;
  NestBuilder nest(s, kernel);
  GroupEmitter(s, unit, nest, plan, phase, partials).emit();
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
  if (!s.options.gpu || !group.has_reduction || plan.inner.empty() || plan.tile) return;
  const bool plain = std::all_of(group.members.begin(), group.members.end(), [&](const Member& m) {
    return m.kind == Member::Kind::kReduce && m.stage == 0 &&
           !is_custom(s.nodes[static_cast<size_t>(m.node)]->reduction_def);
  });
  if (!plain) return;
  int64_t rows = 1;
  for (const LoopSpec& loop : plan.outer) {
    if (loop.kind != LoopKind::kParallel) return;
    rows *= std::max<int64_t>(s.hint(loop.extent, 64), 1);
  }
  const auto narrow = [&](const LoopSpec& loop) {
    if (!loop.dim.valid() || !loop.extent.is_const()) return false;
    const int64_t width = loop.extent.const_value();
    const auto d = std::find(group.symbols.begin(), group.symbols.end(), loop.dim) - group.symbols.begin();
    if (static_cast<size_t>(d) == group.symbols.size() || !(group.dims[static_cast<size_t>(d)] == loop.extent))
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
  plan.copied = found->dim;
  plan.copies = found->extent.const_value();
  plan.outer.erase(found);
}

}  // namespace

void emit_group(State& s, int unit) {
  const Group& group = s.units[static_cast<size_t>(unit)].group;
  if (group.members.empty()) return;
  loops::Kernel scratch;
  NestBuilder dry(s, scratch);
  const NestPlan plain = plain_nest(group);
  GroupEmitter trial(s, unit, dry, plain);
  trial.emit();
  NestPlan plan = plan_nest(s, group, dry.accesses, dry.index_uses);
  if (group.has_reduction && !s.options.gpu) keep_between_walks(s, group, dry.accesses, plan, trial.needed_twice());
  Expr elements = s.ctx.constant(1);
  for (const Expr e : group.dims) elements = elements * e;
  const auto chunked = group.has_reduction && walks_once(group) ? split_reduction(s, plan) : std::nullopt;
  if (!chunked) {
    copy_narrow_dim(s, group, dry.accesses, plan);
    share_rows(s, group, dry.accesses, dry.num_ops, plan);
    if (!plan.tile && !s.options.gpu) {
      auto& pairs = s.in_place[s.out.plan.steps.size()];
      pairs = replaceable(s, group, dry.accesses);
      for (const auto& [key, host] : plan.kept_in_result) {
        const BufferId taken = s.values[static_cast<size_t>(host)].storage->buffer;
        std::erase_if(pairs, [&](const auto& pair) { return pair.first == taken; });
      }
    }
    emit_kernel(s, unit, plan, elements, Phase::kWhole, nullptr);
    return;
  }
  s.note(first_name(s, group),
         str_cat("split into ", chunked->chunks.extent.str(), " chunks: too few rows for the threads"));
  Partials partials{chunked->chunks, {}, {}};
  for (const LoopSpec& loop : plan.outer) {
    if (loop.kind != LoopKind::kParallel) partials.columns.push_back(loop.var);
  }
  emit_kernel(s, unit, chunked->nest, elements, Phase::kPartial, &partials);
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
