// Groups the realised values into kernels. A value joins a group when it iterates over the same space and reads the
// group's values only at the positions where the group has them at hand; a trial evaluation finds that out.
#include <algorithm>
#include <functional>
#include <map>

#include "schedule/loop_order.h"
#include "support/cancel.h"
#include "support/error.h"
#include "support/log.h"

namespace tatara::sched {

namespace {

constexpr size_t kNeighbours = 6;     // groups looked at for sharing loads
constexpr int64_t kBigRow = 1 << 15;  // elements of a row that a GPU's block should not do alone
constexpr size_t kMaxMembers = 48;

Expr exact_quotient(State& s, Expr a, Expr b) {
  if (a.is_const(0) || b.is_const(0)) return {};
  if (a.is_const() && b.is_const()) {
    if (a.const_value() % b.const_value() != 0) return {};
    return s.ctx.constant(a.const_value() / b.const_value());
  }
  const Expr q = s.simplify(s.ctx.floordiv(a, b));
  if (s.simplify(q * b) == s.simplify(a)) return q;
  return {};
}

void give_symbols(State& s, Space& g) {
  g.symbols.clear();
  for (size_t d = 0; d < g.dims.size(); ++d) g.symbols.push_back(s.pooled_symbol(g.dims[d], d));
}

/// Splits the dims of the group (those not reduced when !full) so that `sizes` are products of neighbours.
std::optional<Space> refine(State& s, const Space& space, const std::vector<Expr>& sizes, bool full) {
  Space result;
  result.has_reduction = space.has_reduction;
  size_t at = 0;
  Expr left = sizes.empty() ? Expr() : sizes[0];
  for (size_t d = 0; d < space.dims.size(); ++d) {
    const bool is_reduced = space.reduced[d];
    const auto push = [&](Expr e) {
      result.dims.push_back(e);
      result.reduced.push_back(is_reduced);
    };
    if (!full && is_reduced) {
      push(space.dims[d]);
      continue;
    }
    Expr rest = space.dims[d];
    for (;;) {
      if (at >= sizes.size()) return std::nullopt;
      if (rest == left) {
        push(rest);
        ++at;
        left = at < sizes.size() ? sizes[at] : Expr();
        break;
      }
      if (const Expr q = exact_quotient(s, rest, left); q.valid()) {
        push(left);
        rest = q;
        ++at;
        left = at < sizes.size() ? sizes[at] : Expr();
        continue;
      }
      if (const Expr q = exact_quotient(s, left, rest); q.valid()) {
        push(rest);
        left = q;
        break;
      }
      return std::nullopt;
    }
  }
  if (at != sizes.size()) return std::nullopt;
  give_symbols(s, result);
  return result;
}

/// Which dims of the group the reduced dimensions of `node` cover; nullopt when they cover a dim partly.
std::optional<std::vector<bool>> reduced_dims(const Space& space, const Member& member, const LoweredNode& node) {
  std::vector<bool> flags(space.dims.size(), false);
  size_t d = 0;
  const std::vector<Expr>& sizes = *member.sizes;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].is_const(1)) continue;
    const auto& dims = node.reduction_def().dims;
    const bool is_reduced = std::find(dims.begin(), dims.end(), static_cast<int64_t>(i)) != dims.end();
    Expr product = space.dims[d];
    flags[d++] = is_reduced;
    while (!(product == sizes[i])) {
      if (d >= space.dims.size()) return std::nullopt;
      product = product.context().simplify(product * space.dims[d]);
      flags[d++] = is_reduced;
    }
  }
  return flags;
}

struct Trial {
  FlatSet<ValueId> reads;
  int stage = 0;
  double ops = 0;
  std::vector<Access> accesses;
  std::vector<Expr> index_uses;

  void give_to(Member& m) {
    m.accesses = std::move(accesses);
    m.index_uses = std::move(index_uses);
  }
};

Access access_of(State& s, ValueId v, const std::vector<Expr>& indices, bool store, bool masked) {
  const ValueInfo& info = s.values[static_cast<size_t>(v)];
  const std::vector<Expr>& strides = info.storage ? *info.storage->strides : storage_strides(s, v);
  Expr address = s.ctx.constant(0);
  for (size_t i = 0; i < indices.size(); ++i) address = address + indices[i] * strides[i];
  return {s.simplify(address), store, s.graph.type(v).dtype, v, masked};
}

const Member* member_of(const std::vector<Member>& members, State& s, ValueId v) {
  const NodeId producer = s.graph.value(v).producer;
  for (const Member& m : members) {
    if (m.kind == Member::Kind::kStore ? m.value == v : m.node == producer) return &m;
  }
  return nullptr;
}

/// What the member reads and computes, `others` of the unit being at hand.
Trial try_member(State& s, const Space& space, const std::vector<Member>& others, int unit, const Member& member) {
  Trial trial;
  loops::Kernel scratch;
  NestBuilder nest(s, scratch, NestBuilder::Statements::kNone);
  const auto index = index_map(s, space, *member.sizes, member.full);
  if (!index) throw CannotFuse{"sizes differ"};
  nest.access = [&](ValueId v, const std::vector<Expr>& indices, ScalarId mask) -> std::optional<ScalarId> {
    const ValueInfo& info = s.values[static_cast<size_t>(v)];
    if (!info.root || v == member.value) return std::nullopt;
    const ScalarId fake = nest.new_scalar(compute_dtype(s.graph.type(v).dtype));
    if (info.unit != unit || unit < 0) {
      trial.reads.insert(v);
      trial.accesses.push_back(access_of(s, v, indices, false, mask != loops::kNoScalar));
      return fake;
    }
    const Member* other = member_of(others, s, v);
    if (other == nullptr) throw CannotFuse{"the kernel only stores it"};  // a second result
    auto at = index_map(s, space, *other->sizes, other->full);
    if (!at) throw CannotFuse{"sizes differ"};  // by what is known since
    if (other->kind == Member::Kind::kReduce) {
      at = reduced_indices(*s.nodes[static_cast<size_t>(other->node)], *at);
    }
    bool same = at->size() == indices.size();
    for (size_t i = 0; same && i < indices.size(); ++i) same = s.simplify((*at)[i]) == indices[i];
    if (!same) throw CannotFuse{str_cat("reads ", s.name_of(v), " at another position")};
    if (other->kind == Member::Kind::kReduce) {
      trial.stage = std::max(trial.stage, other->stage + 1);
      return fake;
    }
    trial.stage = std::max(trial.stage, other->stage);
    if (s.nodes[static_cast<size_t>(other->node)]->gives_tiles()) return fake;
    return std::nullopt;
  };
  if (member.kind == Member::Kind::kStore) {
    nest.eval(member.value, *index);
    trial.accesses.push_back(access_of(s, member.value, *index, true, false));
  } else {
    const LoweredNode& node = *s.nodes[static_cast<size_t>(member.node)];
    NodeBuilder builder(nest, node, loops::kNoScalar);
    node.reduction_def().element(builder, *index);
  }
  trial.ops = nest.work.operations;
  trial.index_uses = std::move(nest.index_uses);
  return trial;
}

class Former {
 public:
  explicit Former(State& s) : s_(s) {}

  void run() {
    using Kind = LoweredNode::Kind;
    for (size_t i = 0; i < s_.nodes.size(); ++i) {
      check_cancelled();
      s_.prefetch_nodes(i);
      const LoweredNode* node = s_.nodes[i];
      if (node == nullptr) continue;
      switch (node->kind) {
        case Kind::kElement:
        case Kind::kView:
          for (const ValueId v : node->node().outputs) {
            if (s_.values[static_cast<size_t>(v)].root) add_value(v);
          }
          break;
        case Kind::kReduction: {
          Member m;
          m.kind = Member::Kind::kReduce;
          m.node = static_cast<NodeId>(i);
          m.sizes = &node->operand(0).sizes;
          place(std::move(m));
          break;
        }
        case Kind::kScan: add_single(Unit::Kind::kScan, static_cast<NodeId>(i)); break;
        case Kind::kScatter: add_single(Unit::Kind::kScatter, static_cast<NodeId>(i)); break;
        case Kind::kSort: add_operator(Unit::Kind::kSort, static_cast<NodeId>(i)); break;
        case Kind::kAttention:
        case Kind::kWeighed:
        case Kind::kProduct: add_product(static_cast<NodeId>(i)); break;
        case Kind::kScores: break;  // part of an attention
        case Kind::kHost: add_operator(Unit::Kind::kHost, static_cast<NodeId>(i)); break;
      }
    }
  }

 private:
  void add_value(ValueId v) {
    Member m;
    m.value = v;
    m.node = s_.graph.value(v).producer;
    m.sizes = &s_.graph.type(v).sizes;
    place(std::move(m));
  }

  /// Of a group of the member's own.
  Space own_space(const Member& m) {
    Space g;
    g.dims = without_ones(*m.sizes);
    g.reduced.assign(g.dims.size(), false);
    give_symbols(s_, g);
    if (m.kind == Member::Kind::kReduce) {
      g.reduced = *reduced_dims(g, m, *s_.nodes[static_cast<size_t>(m.node)]);
      g.has_reduction = true;
    }
    return g;
  }

  void place(Member member) {
    Space own = own_space(member);
    Trial alone = try_member(s_, own, {}, -1, member);
    std::vector<int> candidates;
    const int earliest = first_unit(member.node);
    for (const ValueId v : alone.reads) {
      const int unit = s_.values[static_cast<size_t>(v)].unit;
      if (unit >= earliest) candidates.push_back(unit);
    }
    std::sort(candidates.begin(), candidates.end(), std::greater<>());
    candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
    const size_t vertical = candidates.size();
    size_t seen = 0;
    for (size_t u = s_.units.size(); u-- > static_cast<size_t>(earliest) && seen < kNeighbours; ++seen) {
      const int id = static_cast<int>(u);
      if (std::find(candidates.begin(), candidates.end(), id) == candidates.end()) candidates.push_back(id);
    }
    for (size_t i = 0; i < candidates.size() && s_.options.fuse && !is_disabled_; ++i) {
      if (join(candidates[i], member, alone, i < vertical)) return;
    }
    Unit unit;
    unit.group.space = s_.spaces.intern(std::move(own));
    alone.give_to(member);
    unit.node = member.node;
    unit.group.members.push_back(std::move(member));
    add_unit(std::move(unit), alone.reads);
  }

  /// What is computed again would be kept from early on, were it part of a kernel that runs before the others of its kind.
  int first_unit(NodeId node) {
    const int again = node >= 0 ? s_.graph.node(node).again : 0;
    return again == 0 ? 0 : again_.emplace(again, static_cast<int>(s_.units.size())).first->second;
  }

  bool join(int id, const Member& member, const Trial& alone, bool vertical) {
    Unit& unit = s_.units[static_cast<size_t>(id)];
    if (unit.kind != Unit::Kind::kGroup && unit.kind != Unit::Kind::kProduct) return false;
    std::string why;
    try {
      const bool shares = std::any_of(alone.reads.begin(), alone.reads.end(),
                                      [&](ValueId v) { return unit.reads.contains(v) && s_.graph.type(v).dim() > 0; });
      if (!vertical && !shares) return false;
      join_checked(id, unit, member, alone, vertical);
      return true;
    } catch (const CannotFuse& failure) {
      why = failure.reason;
    }
    const ValueId v = member.kind == Member::Kind::kStore ? member.value : s_.graph.node(member.node).outputs[0];
    if (vertical) s_.note(s_.name_of(v), str_cat("not fused with ", first_name(unit), ": ", why));
    TATARA_LOG(kFusion, s_.name_of(v), " not fused with ", first_name(unit), ": ", why);
    return false;
  }

  void join_checked(int id, Unit& unit, const Member& original, const Trial& alone, bool vertical) {
    const bool full = unit.group.members.size() >= kMaxMembers || too_many(unit.reads, alone.reads);
    if (full) throw CannotFuse{"the kernel is full"};
    for (const ValueId v : alone.reads) {
      const int other = s_.values[static_cast<size_t>(v)].unit;
      if (other >= 0 && other != id && s_.needs.may_need(other, id)) {
        throw CannotFuse{str_cat("it needs ", s_.name_of(v), ", which comes after")};
      }
    }
    if (!s_.needs.can_need(id, units_of(alone.reads, id))) {
      throw CannotFuse{"too much comes between it and what it needs"};
    }
    Member member = original;
    const Space& before = *unit.group.space;
    const std::vector<Expr> sizes = without_ones(*member.sizes);
    std::optional<Space> refined = refine(s_, before, sizes, true);
    if (!refined && member.kind == Member::Kind::kStore && before.has_reduction) {
      member.full = false;
      refined = refine(s_, before, sizes, false);
    }
    if (!refined) throw CannotFuse{"sizes differ"};
    if (member.kind == Member::Kind::kReduce) {
      const auto flags = reduced_dims(*refined, member, *s_.nodes[static_cast<size_t>(member.node)]);
      if (!flags) throw CannotFuse{"sizes differ"};
      if (before.has_reduction && *flags != refined->reduced) throw CannotFuse{"reduces other dimensions"};
      refined->reduced = *flags;
    }
    if (unit.kind == Unit::Kind::kProduct) {
      if (!vertical || member.kind != Member::Kind::kStore) throw CannotFuse{"what is no element of a product"};
      if (refined->dims != before.dims) throw CannotFuse{"sizes differ"};
    }
    const bool becomes_reduction = member.kind == Member::Kind::kReduce && !before.has_reduction;
    refined->has_reduction = before.has_reduction || member.kind == Member::Kind::kReduce;
    if (becomes_reduction && !vertical) throw CannotFuse{"a reduction beside a pointwise kernel"};
    Trial trial = try_member(s_, *refined, unit.group.members, id, member);
    member.stage = trial.stage;
    trial.give_to(member);
    std::vector<Member> split;  // the others, where a dim has become several
    if (refined->dims != before.dims) {
      split = unit.group.members;
      for (Member& m : split) try_member(s_, *refined, split, id, m).give_to(m);
    }
    keep_blocks_whole(s_, split.empty() ? unit.group.members : split, member);
    if (unit.kind == Unit::Kind::kProduct) {
      if (!product_takes(s_, unit, member, trial.ops)) throw CannotFuse{"too much to do for each element of a product"};
    } else if (s_.options.gpu) {
      check_parallelism(*refined, split.empty() ? unit.group.members : split, member);
    } else {
      keep_products_plain(s_, split.empty() ? unit.group.members : split, member);
      check_cost(unit.group, *refined, split.empty() ? unit.group.members : split, member, alone);
    }
    unit.group.space = s_.spaces.intern(std::move(*refined));
    if (!split.empty()) unit.group.members = std::move(split);
    const ValueId v = member.kind == Member::Kind::kStore ? member.value : s_.graph.node(member.node).outputs[0];
    TATARA_LOG(kFusion, s_.name_of(v), " fused with ", first_name(unit));
    own_outputs(member, id);
    unit.group.members.push_back(std::move(member));
    depend(id, trial.reads);
  }

  /// A long row walked again by the one thread that has its reduction is slower than a second, parallel kernel.
  void check_parallelism(const Space& group, const std::vector<Member>& others, const Member& member) {
    if (s_.options.num_threads <= 1 || !member.full || member.stage == 0) return;
    int64_t rows = 1;
    int64_t row = 1;
    for (size_t d = 0; d < group.dims.size(); ++d)
      (group.reduced[d] ? row : rows) *= std::max<int64_t>(s_.hint(group.dims[d], 64), 1);
    if (rows < 2 * s_.options.num_threads && row > kBigRow) throw CannotFuse{"one long row would run on one thread"};
    std::vector<const Member*> members = {&member};
    for (const Member& m : others) members.push_back(&m);
    if (!fills_gpu_again(s_, group, members, rows, row)) throw CannotFuse{"the rows are too few for the threads"};
  }

  /// Whether neighbours of what the group stores are not neighbours in what the member stores.
  static bool stores_across(const Space& joined, const std::vector<Member>& members, const Member& member) {
    if (member.kind != Member::Kind::kStore) return false;
    const Access& own = member.accesses.back();
    for (const Member& m : members) {
      if (m.kind != Member::Kind::kStore || !m.full) continue;
      const Access& other = m.accesses.back();
      for (const Expr d : joined.symbols) {
        const auto along = [&](const Access& a) {
          const Expr c = a.address.contains(d) ? a.address.coefficient_of(d) : Expr();
          return c.valid() && c.is_const(1);
        };
        if (along(own) != along(other)) return true;
      }
      return false;
    }
    return false;
  }

  /// A member that walks the rows of a reduction once more, or stores them in another order, may be cheaper on its own.
  void check_cost(const Group& before, const Space& joined, const std::vector<Member>& others, const Member& member,
                  const Trial& alone) {
    if (!member.full || !(joined.has_reduction || stores_across(joined, others, member))) return;
    std::vector<const Member*> members;
    for (const Member& m : before.members) members.push_back(&m);
    double apart = kernel_cost(s_, *before.space, members);
    members.clear();
    for (const Member& m : others) members.push_back(&m);
    members.push_back(&member);
    const double together = kernel_cost(s_, joined, members);
    if (together <= apart) return;
    Member own = member;
    own.stage = 0;
    Trial(alone).give_to(own);
    apart += kernel_cost(s_, own_space(member), {&own});
    if (together > apart) throw CannotFuse{"walking the rows again, or across their order, costs more than a kernel"};
  }

  std::string first_name(const Unit& unit) const {
    return unit.node >= 0 ? s_.graph.node(unit.node).op->name : std::string("a copy");
  }

  void own_outputs(const Member& member, int id) {
    if (member.kind == Member::Kind::kStore) {
      s_.values[static_cast<size_t>(member.value)].unit = id;
      return;
    }
    for (const ValueId v : s_.graph.node(member.node).outputs) s_.values[static_cast<size_t>(v)].unit = id;
  }

  /// Where these values come from, if not from the unit itself.
  std::vector<int> units_of(const FlatSet<ValueId>& reads, int id) const {
    std::vector<int> units;
    for (const ValueId v : reads) {
      const int other = s_.values[static_cast<size_t>(v)].unit;
      if (other >= 0 && other != id) units.push_back(other);
    }
    std::sort(units.begin(), units.end());
    units.erase(std::unique(units.begin(), units.end()), units.end());
    return units;
  }

  void depend(int id, const FlatSet<ValueId>& reads) {
    s_.units[static_cast<size_t>(id)].reads.insert_all(reads);
    s_.needs.need(id, units_of(reads, id));
  }

  void add_unit(Unit unit, const FlatSet<ValueId>& reads) {
    const int id = s_.needs.add();
    if (unit.kind == Unit::Kind::kGroup) {
      own_outputs(unit.group.members[0], id);
    } else {
      for (const ValueId v : s_.graph.node(unit.node).outputs) s_.values[static_cast<size_t>(v)].unit = id;
    }
    s_.units.push_back(std::move(unit));
    depend(id, reads);
  }

  /// Reads its operands from memory; what is done with each element may join it.
  void add_product(NodeId node) {
    add_operator(Unit::Kind::kProduct, node);
    const ValueId v = s_.graph.node(node).outputs[0];
    Member m{.node = node, .value = v, .sizes = &s_.graph.type(v).sizes};
    Unit& unit = s_.units.back();
    unit.group.space = s_.spaces.intern(own_space(m));
    unit.group.members.push_back(std::move(m));
  }

  /// Reads its operands from memory.
  void add_operator(Unit::Kind kind, NodeId node) {
    const FlatSet<ValueId> reads = operator_reads(s_, *s_.nodes[static_cast<size_t>(node)]);
    Unit unit;
    unit.kind = kind;
    unit.node = node;
    add_unit(std::move(unit), reads);
    if (s_.graph.node(node).op->nondeterministic) follow_draws();
  }

  /// The newest unit draws random numbers: after those before it in the program.
  void follow_draws() {
    const int newest = static_cast<int>(s_.units.size()) - 1;
    if (last_draw_ >= 0) s_.needs.need(newest, {last_draw_});
    last_draw_ = newest;
  }

  /// Scans and scatters: everything they read, by a trial.
  void add_single(Unit::Kind kind, NodeId id) {
    const LoweredNode& node = *s_.nodes[static_cast<size_t>(id)];
    FlatSet<ValueId> reads;
    loops::Kernel scratch;
    NestBuilder nest(s_, scratch, NestBuilder::Statements::kNone);
    nest.access = [&](ValueId v, const std::vector<Expr>&, ScalarId) -> std::optional<ScalarId> {
      if (!s_.values[static_cast<size_t>(v)].root) return std::nullopt;
      reads.insert(v);
      return nest.new_scalar(compute_dtype(s_.graph.type(v).dtype));
    };
    NodeBuilder builder(nest, node, loops::kNoScalar);
    const std::vector<Expr>& sizes = kind == Unit::Kind::kScan ? node.operand(0).sizes : node.scatter_def().domain;
    std::vector<Expr> index;
    FlatSet<ValueId> operand_reads;
    for (size_t d = 0; d < sizes.size(); ++d) index.push_back(s_.pooled_symbol(sizes[d], d));
    if (kind == Unit::Kind::kScan) {
      node.reduction_def().element(builder, index);
    } else {
      node.scatter_def().destination(builder, index);
      node.scatter_def().value(builder, index);
      operand_reads = reads;
      index.clear();
      const std::vector<Expr>& base = node.result().sizes;
      for (size_t d = 0; d < base.size(); ++d) index.push_back(s_.pooled_symbol(base[d], d));
      builder.load(node.scatter_def().base_operand, index);
    }
    Unit unit;
    unit.kind = kind;
    unit.node = id;
    unit.operand_reads = std::move(operand_reads);
    add_unit(std::move(unit), reads);
  }

  State& s_;
  std::map<int, int> again_;  // per number of Node::again: the units when the first of these nodes came
  int last_draw_ = -1;        // the last unit that draws random numbers
  bool is_disabled_ = s_.options.passes.skips("fusion");
};

}  // namespace

std::optional<std::vector<Expr>> index_map(State& s, const Space& space, const std::vector<Expr>& sizes, bool full) {
  std::vector<Expr> index;
  size_t d = 0;
  const auto skip = [&] {
    while (d < space.dims.size() && !full && space.reduced[d]) ++d;
  };
  for (const Expr size : sizes) {
    if (size.is_const(1)) {
      index.push_back(s.ctx.constant(0));
      continue;
    }
    skip();
    if (d >= space.dims.size()) return std::nullopt;
    Expr product = space.dims[d];
    Expr at = space.symbols[d++];
    while (!(product == size)) {
      skip();
      if (d >= space.dims.size()) return std::nullopt;
      at = at * space.dims[d] + space.symbols[d];
      product = s.simplify(product * space.dims[d++]);
    }
    index.push_back(at);
  }
  skip();
  if (d != space.dims.size()) return std::nullopt;
  return index;
}

std::vector<Expr> reduced_indices(const LoweredNode& node, const std::vector<Expr>& input) {
  const auto& dims = node.reduction_def().dims;
  const bool keepdim = node.result().sizes.size() == input.size() && !input.empty();
  std::vector<Expr> result;
  for (size_t i = 0; i < input.size(); ++i) {
    const bool is_reduced = std::find(dims.begin(), dims.end(), static_cast<int64_t>(i)) != dims.end();
    if (!is_reduced) {
      result.push_back(input[i]);
    } else if (keepdim) {
      result.push_back(node.ctx().constant(0));
    }
  }
  return result;
}

bool reads_elementwise(State& s, int unit, ValueId input) {
  const Group& group = s.units[static_cast<size_t>(unit)].group;
  const auto own = index_map(s, *group.space, s.graph.type(input).sizes, true);
  if (!own) return false;
  bool same = true;
  for (const Member& m : group.members) {
    loops::Kernel scratch;
    NestBuilder nest(s, scratch, NestBuilder::Statements::kNone);
    nest.access = [&](ValueId v, const std::vector<Expr>& indices, ScalarId) -> std::optional<ScalarId> {
      const ValueInfo& info = s.values[static_cast<size_t>(v)];
      if (!info.root || info.unit == unit) return std::nullopt;
      if (v == input) {
        for (size_t i = 0; i < indices.size(); ++i) same = same && s.simplify((*own)[i]) == indices[i];
      }
      return nest.new_scalar(compute_dtype(s.graph.type(v).dtype));
    };
    const auto index = index_map(s, *group.space, *m.sizes, m.full);
    if (!index) return false;
    nest.eval(m.value, *index);
  }
  return same;
}

void form_units(State& s) {
  Former(s).run();
  // What other units read must be in memory.
  s.readers.resize(s.values.size());
  for (size_t u = 0; u < s.units.size(); ++u) {
    for (const ValueId v : s.units[u].reads) {
      s.readers[static_cast<size_t>(v)].push_back(static_cast<int>(u));
      ValueInfo& info = s.values[static_cast<size_t>(v)];
      if (info.unit != static_cast<int>(u)) info.stored = true;
    }
  }
  // Values that were made roots in case, and are read inside of their own group only.
  for (Unit& unit : s.units) {
    std::erase_if(unit.group.members, [&](const Member& m) {
      return m.kind == Member::Kind::kStore && !s.values[static_cast<size_t>(m.value)].stored;
    });
    // Had no other use than to compare groups; kernels take their place in memory.
    for (Member& m : unit.group.members) {
      m.accesses = {};
      m.index_uses = {};
    }
  }
}

}  // namespace tatara::sched
