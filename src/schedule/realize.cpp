// Which values are computed into memory: inputs and results of host kernels, reductions, outputs, and what would be
// computed several times at a price.
#include <algorithm>
#include <set>
#include <unordered_map>

#include "schedule/nest_builder.h"
#include "support/error.h"

namespace tatara::sched {

namespace {

constexpr double kFewFunctions = 0.1;  // for each element
constexpr double kCheapOps = 3;        // recomputing this much costs less than a trip to memory
constexpr double kCheapLoads = 1.2;    // reading this many elements again costs less than writing one and reading it
constexpr double kCheapNarrow = 8;     // the same where what is read is narrow beside the result (a mask of bytes)
constexpr double kManyReaders = 4;     // elementary functions are computed once for this many readers of an element
constexpr double kWorthMemory = 100;   // operations on a GPU that cost what writing an element and reading it does
constexpr int kMaxDepth = 40;          // operators inlined into each other
constexpr double kMaxOps = 400;        // of one inlined expression

/// What one element of a node's output takes: scalar operations, and how each operand is read.
struct Probe {
  double ops = 0;
  double functions = 0;
  std::vector<std::set<std::vector<const ExprNode*>>> reads;
  std::vector<bool> looked_up;
};

bool only_of(Expr e, const std::vector<Expr>& dims) {
  if (e.is_symbol()) {
    return std::find(dims.begin(), dims.end(), e) != dims.end() || e.str().rfind("_x", 0) != 0;
  }
  for (const Expr operand : e.operands()) {
    if (!only_of(operand, dims)) return false;
  }
  return true;
}

Probe probe(State& s, const LoweredNode& node, size_t output) {
  Probe result;
  result.reads.resize(node.operands.size());
  result.looked_up.resize(node.operands.size(), false);
  loops::Kernel scratch;
  NestBuilder nest(s, scratch, NestBuilder::Statements::kNone);
  const TensorType& type = node.result(static_cast<int>(output));
  std::vector<Expr> dims;
  for (size_t d = 0; d < type.sizes.size(); ++d) dims.push_back(s.pooled_symbol(type.sizes[d], d));
  nest.access = [&](ValueId v, const std::vector<Expr>& indices, ScalarId) -> std::optional<ScalarId> {
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (node.operands[i] != v) continue;
      std::vector<const ExprNode*> key;
      for (const Expr e : indices) {
        key.push_back(e.node());
        if (!only_of(e, dims)) result.looked_up[i] = true;
      }
      result.reads[i].insert(std::move(key));
    }
    return nest.new_scalar(compute_dtype(s.graph.type(v).dtype));
  };
  NodeBuilder builder(nest, node, loops::kNoScalar);
  node.element(output)(builder, dims);
  result.ops = nest.work.cost;
  result.functions = nest.work.functions;
  return result;
}

ValueId base_of_views(State& s, ValueId v) {
  for (;;) {
    const LoweredNode* node = s.producer(v);
    if (node == nullptr || node->kind != LoweredNode::Kind::kView) return v;
    v = node->operands[0];
  }
}

/// A bias or a mask by places alone, for scores of an attention: cheaper computed for each of them than read, and as large as all.
bool computed_near(State& s, ValueId v) {
  using Kind = LoweredNode::Kind;
  const ValueInfo& info = s.values[static_cast<size_t>(v)];
  if (info.near == 0 || info.near != s.uses[static_cast<size_t>(v)] || info.functions > kFewFunctions) return false;
  const LoweredNode* node = s.producer(v);
  return node != nullptr && (node->kind == Kind::kElement || node->kind == Kind::kView) && node->block_of(0) == nullptr;
}

void make_root(State& s, ValueId v, bool stored) {
  ValueInfo& info = s.values[static_cast<size_t>(v)];
  if (info.inside) return;
  if (!stored && computed_near(s, v)) return;
  info.root = true;
  info.stored = info.stored || stored;
}

double elements_of(const State& s, ValueId v) { return s.values[static_cast<size_t>(v)].elements; }

void count_elements(State& s, ValueId v) {
  double& elements = s.values[static_cast<size_t>(v)].elements;
  for (const Expr e : s.graph.type(v).sizes) elements *= static_cast<double>(s.hint(e, 64));
}

/// What `v` is a view of that is no view, and the first view of that, on the way to v, which has half of its elements at most
/// and repeats none.
std::pair<ValueId, ValueId> part_of(State& s, ValueId v) {
  std::vector<ValueId> chain{v};
  const LoweredNode* node = s.producer(v);
  while (node != nullptr && node->kind == LoweredNode::Kind::kView) {
    chain.push_back(node->operands[0]);
    node = s.producer(chain.back());
  }
  const ValueId base = chain.back();
  const auto is_part = [&](ValueId view) {
    return 2 * elements_of(s, view) <= elements_of(s, base) && !repeats(s.graph.type(view));
  };
  while (!chain.empty() && !is_part(chain.back())) chain.pop_back();
  return {base, chain.empty() ? kNoValue : chain.back()};
}

/// Values that are computed where they are read, but must lie in memory where the host reads views of them: which of their parts
/// these are views of.
struct Wanted {
  std::unordered_map<ValueId, FlatSet<ValueId>> parts;
  std::vector<bool> whole;  // per value
};

/// `v` is going to be realised.
void note_part(State& s, ValueId v, Wanted& wanted) {
  const auto [base, part] = part_of(s, v);
  if (part == kNoValue) {
    wanted.whole[static_cast<size_t>(base)] = true;
  } else {
    wanted.parts[base].insert(part);
  }
}

Wanted parts_wanted(State& s) {
  Wanted all{{}, std::vector<bool>(s.values.size(), false)};
  for (const auto& node : s.nodes) {
    using Kind = LoweredNode::Kind;
    const bool reads_memory =
        node != nullptr && (node->kind == Kind::kHost || node->kind == Kind::kSort || node->kind == Kind::kProduct ||
                            node->kind == Kind::kScores || node->kind == Kind::kAttention);
    if (node != nullptr && node->kind == Kind::kWeighed) note_part(s, node->operands[0], all);
    if (!reads_memory) continue;
    for (const ValueId v : node->operands) note_part(s, v, all);
  }
  for (const InputWrite& write : s.graph.input_writes()) note_part(s, write.value, all);
  for (const GraphOutput& output : s.graph.outputs()) {
    if (output.value != kNoValue) note_part(s, output.value, all);
  }
  return all;
}

/// A copy into another order, on a GPU: sums over rows of that order would walk what it copies with few threads.
bool changes_order(const State& s, const LoweredNode& node) {
  const TensorType& type = s.graph.type(node.node().outputs[0]);
  return node.node().op->traits.copies_to_strides && type.device.kind == DeviceKind::kCuda &&
         s.graph.type(node.operands[0]).strides != type.strides;
}

/// Puts `v` into memory, or what it can be seen in: all of that, or where little of it is wanted there, a part.
void realise(State& s, ValueId v, const Wanted& wanted) {
  const auto [base, part] = part_of(s, v);
  const LoweredNode* node = s.producer(base);
  if (part != kNoValue && node != nullptr && node->kind == LoweredNode::Kind::kElement &&
      !s.values[static_cast<size_t>(base)].root) {
    double elements = 0;
    for (const ValueId each : wanted.parts.at(base)) elements += elements_of(s, each);
    if (!wanted.whole[static_cast<size_t>(base)] && 2 * elements <= elements_of(s, base)) make_root(s, part, false);
  }
  make_root(s, base_of(s, v), true);
}

/// `operand` varies along the innermost dimension and is read again for many outer indices of `v`: computing it anew for each
/// cannot be hoisted out of the inner loop.
bool broadcast_inside(State& s, ValueId operand, ValueId v) {
  const std::vector<Expr>& sizes = s.graph.type(operand).sizes;
  return !sizes.empty() && !sizes.back().is_const(1) &&
         elements_of(s, v) >= kManyReaders * std::max(elements_of(s, operand), 1.0);
}

/// What is computed from an attention's scores has no memory.
void mark_inside(State& s, const LoweredNode& node) {
  using Kind = LoweredNode::Kind;
  const bool inside =
      node.kind == Kind::kScores || ((node.kind == Kind::kElement || node.kind == Kind::kView) &&
                                     std::any_of(node.operands.begin(), node.operands.end(),
                                                 [&](ValueId v) { return s.values[static_cast<size_t>(v)].inside; }));
  for (const ValueId v : node.node().outputs) s.values[static_cast<size_t>(v)].inside = inside;
}

/// Counts the reads by which its operands go into the scores of an attention, as they are read: from the last node to the first.
void note_near(State& s, const LoweredNode& node) {
  using Kind = LoweredNode::Kind;
  const auto count = [&](ValueId v) { ++s.values[static_cast<size_t>(v)].near; };
  if (node.kind == Kind::kAttention) {
    for (const ValueId v : read_inside(node)) count(v);
  }
  if (node.kind != Kind::kElement && node.kind != Kind::kView) return;
  const ValueId out = node.node().outputs[0];
  const ValueInfo& info = s.values[static_cast<size_t>(out)];
  if (info.near == 0 || info.near != s.uses[static_cast<size_t>(out)]) return;
  const std::vector<Expr>& sizes = s.graph.type(out).sizes;
  for (const ValueId v : node.operands) {
    const std::vector<Expr>& own = s.graph.type(v).sizes;
    const bool whole = own.size() >= 2 && sizes.size() >= 2 && own.back() == sizes.back() &&
                       own[own.size() - 2] == sizes[sizes.size() - 2];
    if (whole) count(v);
  }
}

void count_costs(State& s, const LoweredNode& node) {
  for (size_t i = 0; i < node.node().outputs.size(); ++i) {
    const ValueId v = node.node().outputs[i];
    ValueInfo& info = s.values[static_cast<size_t>(v)];
    const auto inherit = [&](ValueId operand, size_t times) {
      const ValueInfo& from = s.values[static_cast<size_t>(operand)];
      // What is broadcast stays in the cache or a register: only its share of this value's elements counts.
      const double share = std::min(1.0, elements_of(s, operand) / std::max(elements_of(s, v), 1.0));
      if (from.root) {
        info.loads += share * static_cast<double>(times);
        info.bytes += share * static_cast<double>(times) * dtype_size(s.graph.type(operand).dtype);
        return;
      }
      info.cost += from.cost * share * static_cast<double>(times);
      info.functions += from.functions * share * static_cast<double>(times);
      info.loads += from.loads * share * static_cast<double>(times);
      info.bytes += from.bytes * share * static_cast<double>(times);
      info.has_short = info.has_short || from.has_short;
      info.depth = std::max(info.depth, from.depth + 1);
    };
    if (node.kind == LoweredNode::Kind::kView) {
      inherit(node.operands[0], 1);
      continue;
    }
    if (!node.has_element(i)) continue;
    const Probe p = probe(s, node, i);
    info.cost = p.ops;
    info.functions = p.functions;
    info.has_short = node.written_out;
    for (size_t k = 0; k < node.operands.size(); ++k) {
      const ValueId base = base_of_views(s, node.operands[k]);
      const ValueInfo& from = s.values[static_cast<size_t>(base)];
      // Written out, a reduction reads each element once, too, and what takes a matrix apart each of the matrix.
      const bool once = node.written_out || node.block_of(i) != nullptr;
      const bool repeated = (p.reads[k].size() > 1 && !once) || p.looked_up[k];
      const double times = elements_of(s, v) / std::max(elements_of(s, base), 1.0);
      if (from.has_short && !from.root && from.cost * (times - 1) > kWorthMemory) make_root(s, base, false);
      if (repeated && !from.root && from.cost > kCheapOps) make_root(s, base, false);
      if (!from.root && from.functions > 0 && broadcast_inside(s, base, v)) make_root(s, base, false);
      inherit(node.operands[k], std::max<size_t>(p.reads[k].size(), 1));
    }
    const bool narrow = info.functions == 0 && 2 * info.bytes <= dtype_size(s.graph.type(v).dtype);
    const bool dear = info.cost > (narrow ? kCheapNarrow : kCheapOps) || info.loads > kCheapLoads;
    if ((s.uses_beyond_views[static_cast<size_t>(v)] > 1 && dear) || info.depth > kMaxDepth || info.cost > kMaxOps) {
      make_root(s, v, false);
    }
  }
}

std::vector<Expr> strides_in_memory(State& s, const TensorType& type, bool moved) {
  // Dense in some order of the dimensions: sort by stride under the hints and check the products.
  std::vector<size_t> order;
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    if (!type.sizes[d].is_const(1)) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return s.hint(type.strides[a], INT64_MAX) < s.hint(type.strides[b], INT64_MAX);
  });
  Expr expected = s.ctx.constant(1);
  for (const size_t d : order) {
    const Expr stride = s.simplify(type.strides[d]), dense = s.simplify(expected);
    // Rows that a pass has moved apart stay so.
    const bool apart = moved && stride.is_const() && dense.is_const() && stride.const_value() > dense.const_value();
    if (!(stride == dense) && !apart) return contiguous_strides(s.ctx, type.sizes);
    expected = s.ctx.mul(stride, type.sizes[d]);
  }
  return type.strides;
}

/// Whether computing `v` where it is used reads `root` from memory.
bool reads_root(State& s, ValueId v, ValueId root, std::set<ValueId>& seen) {
  if (v == root) return true;
  const LoweredNode* node = s.producer(v);
  if (s.values[static_cast<size_t>(v)].root || node == nullptr || !seen.insert(v).second) return false;
  return std::any_of(node->operands.begin(), node->operands.end(),
                     [&](ValueId operand) { return reads_root(s, operand, root, seen); });
}

/// What is written to a part of a tensor and comes from elements of it that are written as well is there before the write, so that
/// the write may be in place.
void keep_from_base(State& s, const LoweredNode& node) {
  const ValueId base = node.operands[static_cast<size_t>(node.scatter_def().base_operand)];
  if (!s.values[static_cast<size_t>(base)].root || reads_apart(s, node)) return;
  for (const ValueId v : node.operands) {
    std::set<ValueId> seen;
    if (v != base && reads_root(s, v, base, seen)) make_root(s, v, true);
  }
}

}  // namespace

bool reads_apart(State& s, const LoweredNode& node) {
  const ScatterDef& def = node.scatter_def();
  const ValueId base = node.operands[static_cast<size_t>(def.base_operand)];
  loops::Kernel scratch;
  NestBuilder nest(s, scratch, NestBuilder::Statements::kNone);
  std::vector<std::vector<Expr>> reads;
  nest.access = [&](ValueId v, const std::vector<Expr>& indices, ScalarId) -> std::optional<ScalarId> {
    if (!s.values[static_cast<size_t>(v)].root) return std::nullopt;
    if (v == base) reads.push_back(indices);
    return nest.new_scalar(compute_dtype(s.graph.type(v).dtype));
  };
  NodeBuilder builder(nest, node, loops::kNoScalar);
  std::vector<Expr> index;
  for (size_t d = 0; d < def.domain.size(); ++d) index.push_back(s.pooled_symbol(def.domain[d], d));
  const std::vector<Expr> to = def.destination(builder, index);
  def.value(builder, index);
  return std::all_of(reads.begin(), reads.end(), [&](const std::vector<Expr>& from) {
    bool same = true;
    for (size_t d = 0; d < to.size(); ++d) {
      const Expr read = s.simplify(from[d]), written = s.simplify(to[d]);
      const IntRange a = s.ctx.range(read), b = s.ctx.range(written);
      if (a.hi < b.lo || b.hi < a.lo) return true;
      same = same && read == written && only_of(written, index);  // not what is looked up: two may be one
    }
    return same;
  });
}

bool repeats(const TensorType& type) {
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    if (type.strides[d].is_const(0) && !type.sizes[d].is_const(1)) return true;
  }
  return false;
}

const std::vector<Expr>& storage_strides(State& s, ValueId v) {
  const TensorType& type = s.graph.type(v);
  const bool moved = s.values[static_cast<size_t>(v)].moved;
  auto& known = moved ? s.strides_as_copied : s.strides_of_type;
  const auto found = known.find(&type);
  return found != known.end() ? found->second : known.emplace(&type, strides_in_memory(s, type, moved)).first->second;
}

std::optional<ViewOf> affine_view(State& s, ValueId v) {
  const TensorType& type = s.graph.type(v);
  std::vector<Expr> dims;
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    dims.push_back(type.sizes[d].is_const(1) ? s.ctx.constant(0) : s.pooled_symbol(type.sizes[d], d));
  }
  std::vector<Expr> indices = dims;
  ValueId base = v;
  while (!s.values[static_cast<size_t>(base)].root) {
    const LoweredNode* node = s.producer(base);
    if (node == nullptr || node->kind != LoweredNode::Kind::kView) break;
    indices = node->view_map(indices);
    base = node->operands[0];
    if (s.graph.type(base).dtype != type.dtype) return std::nullopt;
  }
  ViewOf view;
  view.base = base;
  const ValueInfo& info = s.values[static_cast<size_t>(base)];
  const std::vector<Expr>& strides = info.storage ? *info.storage->strides : storage_strides(s, base);
  if (base == v) {
    view.strides = strides;
    view.offset = info.storage && info.storage->offset.valid() ? info.storage->offset : s.ctx.constant(0);
    return view;
  }
  Expr address = info.storage && info.storage->offset.valid() ? info.storage->offset : s.ctx.constant(0);
  for (size_t i = 0; i < indices.size(); ++i) address = address + s.simplify(indices[i]) * strides[i];
  address = s.simplify(address);
  ExprMap zeros;
  Expr rebuilt = s.ctx.constant(0);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (type.sizes[d].is_const(1)) {
      view.strides.push_back(type.strides[d]);
      continue;
    }
    Expr c = address.contains(dims[d]) ? address.coefficient_of(dims[d]) : s.ctx.constant(0);
    if (!c.valid()) return std::nullopt;
    for (const Expr other : dims) {
      if (other.is_symbol() && c.contains(other)) return std::nullopt;
    }
    view.strides.push_back(c);
    zeros[dims[d]] = s.ctx.constant(0);
    rebuilt = rebuilt + c * dims[d];
  }
  view.offset = s.simplify(s.ctx.substitute(address, zeros));
  if (!(s.simplify(rebuilt + view.offset) == address)) return std::nullopt;
  return view;
}

ValueId base_of(State& s, ValueId v) {
  const auto view = affine_view(s, v);
  return view ? view->base : v;
}

void lower_nodes(State& s) {
  s.values.resize(s.graph.num_values());
  s.nodes.resize(s.graph.num_nodes());
  s.uses.resize(s.values.size());
  s.uses_beyond_views.resize(s.values.size());
  const auto use = [&](ValueId v, int times) {
    s.values[static_cast<size_t>(v)].needed = true;
    ++s.uses[static_cast<size_t>(v)];
    s.uses_beyond_views[static_cast<size_t>(v)] += times;
  };
  for (const ValueId v : s.graph.inputs()) count_elements(s, v);
  for (const GraphOutput& output : s.graph.outputs()) {
    if (output.value != kNoValue) use(output.value, 0);
  }
  for (const InputWrite& write : s.graph.input_writes()) use(write.value, 0);
  // Nodes stand behind what they need, so that one way through a large graph tells all.
  for (size_t i = s.graph.num_nodes(); i-- > 0;) {
    const Node& node = s.graph.node(static_cast<NodeId>(i));
    bool needed = node.op->nondeterministic;
    for (const ValueId v : node.outputs) needed = needed || s.values[static_cast<size_t>(v)].needed;
    if (!needed) continue;
    LoweredNode& lowered = s.lowered.emplace_back(s.graph, static_cast<NodeId>(i));
    s.nodes[i] = &lowered;
    for (const ValueId v : node.outputs) {
      ValueInfo& info = s.values[static_cast<size_t>(v)];
      info.needed = true;
      info.moved = node.op->traits.copies_to_strides;
      count_elements(s, v);
    }
    if (lowered.kind == LoweredNode::Kind::kSort && !sorts_rows(s, lowered)) lowered.kind = LoweredNode::Kind::kHost;
    write_out_short(s, lowered);
    const bool is_view = lowered.kind == LoweredNode::Kind::kView;
    const int times = is_view ? s.uses_beyond_views[static_cast<size_t>(node.outputs[0])] : 1;
    // Parts of one matrix, of which each element is read once.
    const bool weighed = lowered.kind == LoweredNode::Kind::kWeighed;
    const bool parts =
        weighed || (lowered.kind == LoweredNode::Kind::kReduction && lowered.reduction_def().few.has_value());
    size_t first = weighed ? 2 : 1;  // operands that are no further parts
    for (const ValueId v : lowered.operands) {
      use(v, parts && first == 0 ? 0 : times);
      if (first > 0) --first;
    }
    note_near(s, lowered);
  }
}

void choose_roots(State& s) {
  using Kind = LoweredNode::Kind;
  const Wanted wanted = parts_wanted(s);
  for (const ValueId v : s.graph.inputs()) make_root(s, v, true);
  for (size_t i = 0; i < s.nodes.size(); ++i) {
    s.prefetch_nodes(i);
    const LoweredNode* const node = s.nodes[i];
    if (node == nullptr) continue;
    mark_inside(s, *node);
    switch (node->kind) {
      case Kind::kElement:
        count_costs(s, *node);
        for (size_t output = 0; output < node->node().outputs.size(); ++output) {
          if (node->block_of(output) != nullptr) make_root(s, node->node().outputs[output], false);
        }
        if (changes_order(s, *node) && !computed_near(s, node->node().outputs[0]))
          make_root(s, node->node().outputs[0], true);
        break;
      case Kind::kView: count_costs(s, *node); break;
      case Kind::kReduction:
      case Kind::kScan:
        for (const int held : node->reduction_def().in_memory) {
          make_root(s, base_of_views(s, node->operands[static_cast<size_t>(held)]), false);
        }
        for (const ValueId v : node->node().outputs) make_root(s, v, node->kind == Kind::kScan);
        break;
      case Kind::kScatter:
        keep_from_base(s, *node);
        make_root(s, node->node().outputs[0], true);
        break;
      case Kind::kSort:
        for (const ValueId v : node->operands) realise(s, v, wanted);
        for (const ValueId v : node->node().outputs) make_root(s, v, s.uses[static_cast<size_t>(v)] > 0);
        break;
      case Kind::kProduct:
        for (const ValueId v : node->operands) {
          realise(s, v, wanted);
          if (product_parts(*node) > 1 || s.graph.type(v).dim() < 2) continue;
          const bool is_scale = node->form == ProductKind::kScaled && s.graph.type(v).dtype == DType::kFloat32;
          if (!(is_scale ? affine_view(s, v).has_value() : product_matrices(s, v).has_value())) make_root(s, v, true);
        }
        make_root(s, node->node().outputs[0], false);
        break;
      case Kind::kWeighed:
        realise(s, node->operands[0], wanted);
        if (!rows_in_memory(s, node->operands[0])) make_root(s, node->operands[0], true);
        make_root(s, node->node().outputs[0], false);
        break;
      case Kind::kScores:
      case Kind::kAttention:
        realise_matrices(
            s, *node, [&](ValueId v) { realise(s, v, wanted); }, [&](ValueId v) { make_root(s, v, true); });
        make_root(s, node->node().outputs[0], false);
        for (size_t k = 1; k < node->node().outputs.size(); ++k) make_root(s, node->node().outputs[k], true);
        break;
      case Kind::kHost:
        for (const ValueId v : node->operands) realise(s, v, wanted);
        for (const ValueId v : node->node().outputs) make_root(s, v, true);
        break;
    }
  }
  for (const InputWrite& write : s.graph.input_writes()) realise(s, write.value, wanted);
  for (const GraphOutput& output : s.graph.outputs()) {
    if (output.value != kNoValue && output.alias.kind == OutputAlias::Kind::kFresh) realise(s, output.value, wanted);
  }
}

}  // namespace tatara::sched
