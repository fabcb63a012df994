// What the operators' lowering functions say, kept per node.
#include "schedule/internal.h"
#include "support/error.h"

namespace tatara::sched {

LoweredNode::LoweredNode(const Graph& graph, NodeId number)
    : id(number),
      graph_(graph),
      node_(graph.node(number)),
      first_result_(node_.outputs.empty() ? nullptr : &graph.type(node_.outputs[0])) {
  for_each_operand(node_, [&](ValueId v) { operands.push_back(v); });
  for (size_t i = 0; i < numbers_.size(); ++i) {
    const int found = i < node_.args.size() ? LowerContext::operand_number(i) : -1;
    numbers_[i] = static_cast<int8_t>(std::min<int>(found, kNotKnown));
  }
  if (node_.op->lower) node_.op->lower(*this);
}

size_t SpacePool::Hash::operator()(const Space& space) const {
  size_t result = space.has_reduction ? 1 : 0;
  for (size_t d = 0; d < space.dims.size(); ++d) {
    result = (result ^ space.dims[d].hash()) * 0x9E3779B97F4A7C15U + (space.reduced[d] ? 1 : 0);
  }
  return result;
}

void LoweredNode::pointwise(int output, ElementFn fn) {
  kind = Kind::kElement;
  if (output == 0) {
    first_element_ = std::move(fn);
    return;
  }
  if (other_elements_.empty()) other_elements_.resize(node_.outputs.size() - 1);
  other_elements_[static_cast<size_t>(output) - 1] = std::move(fn);
}

void LoweredNode::block(int output, size_t dims, BlockFn fn) {
  auto made = std::make_unique<Block>(Block{dims, 1, fn});
  const std::vector<Expr>& sizes = result(output).sizes;
  for (size_t d = sizes.size() - dims; d < sizes.size(); ++d) made->elements *= sizes[d].const_value();
  LowerContext::block(output, dims, std::move(fn));
  blocks_.resize(node_.outputs.size());
  blocks_[static_cast<size_t>(output)] = std::move(made);
}

void LoweredNode::view(std::function<std::vector<Expr>(std::span<const Expr>)> map) {
  kind = Kind::kView;
  view_map_ = std::move(map);
}

void LoweredNode::reduction(ReductionDef def) {
  kind = Kind::kReduction;
  reduction_ = std::make_unique<ReductionDef>(std::move(def));
}

void LoweredNode::scan(ReductionDef def, bool is_reverse) {
  kind = Kind::kScan;
  reduction_ = std::make_unique<ReductionDef>(std::move(def));
  reverse = is_reverse;
}

void LoweredNode::scatter(ScatterDef def) {
  kind = Kind::kScatter;
  scatter_ = std::make_unique<ScatterDef>(std::move(def));
}

void LoweredNode::sort(SortDef def) {
  kind = Kind::kSort;
  sort_ = std::make_unique<SortDef>(def);
}

// ---- State -----------------------------------------------------------------------------------------------------------

namespace {
constexpr size_t kFar = 8, kNear = 4;  // steps ahead: what is looked at, and what that points to

/// As many cache lines as there are in `count` items.
template <typename T>
void prefetch(const T* items, size_t count = 1) {
  const auto* const bytes = reinterpret_cast<const char*>(items);
  for (size_t at = 0; at < count * sizeof(T); at += 64) __builtin_prefetch(bytes + at);
}
}  // namespace

void State::prefetch_nodes(size_t number) const {
  if (number + kFar >= nodes.size()) return;
  if (const LoweredNode* const far = nodes[number + kFar]) prefetch(far);
  const Node& near = graph.node(static_cast<NodeId>(number + kNear));
  prefetch(near.args.data(), near.args.size());
  prefetch(near.outputs.data());
}

Expr State::simplify(Expr e) {
  if (e.is_const() || e.is_symbol()) return e;
  const auto [found, inserted] = simplified_.try_emplace(e);
  if (inserted) {
    const Expr result = ctx.simplify(e);
    simplified_[e] = result;
    simplified_[result] = result;
    return result;
  }
  return found->second;
}

const std::vector<size_t>& State::steps_with(BufferId buffer) {
  const auto note = [&](BufferId used, size_t step) {
    std::vector<size_t>& steps = steps_with_[used];
    if (steps.empty() || steps.back() != step) steps.push_back(step);
  };
  for (; known_steps_ < out.plan.steps.size(); ++known_steps_) {
    const PlanStep& step = out.plan.steps[known_steps_];
    if (const auto* launch = std::get_if<KernelLaunch>(&step)) {
      for (const BufferId used : launch->buffers) note(used, known_steps_);
    } else {
      for (const BufferRef& ref : std::get<HostCall>(step).tensors) note(ref.buffer, known_steps_);
    }
  }
  return steps_with_[buffer];
}

Expr State::pooled_symbol(Expr extent, size_t n) {
  std::vector<Expr>& pool = pool_[extent];
  if (n >= 1000) {  // lookups: a pool of their own
    std::vector<Expr>& lookups = pool_[ctx.mul(extent, ctx.constant(-1))];
    n -= 1000;
    while (lookups.size() <= n) {
      lookups.push_back(ctx.loop_symbol(str_cat("_x", lookups.size(), "_", extent.str()), extent));
    }
    return lookups[n];
  }
  while (pool.size() <= n) pool.push_back(ctx.loop_symbol(str_cat("_i", pool.size(), "_", extent.str()), extent));
  return pool[n];
}

void State::note(std::string subject, std::string text) { out.notes.push_back({std::move(subject), std::move(text)}); }

int64_t State::hint(Expr e, int64_t otherwise) const {
  if (e.is_const()) return e.const_value();
  return ctx.evaluate_hint(e).value_or(otherwise);
}

std::string State::name_of(ValueId v) const {
  const NodeId id = graph.value(v).producer;
  return id < 0 ? str_cat("input %", v) : str_cat("%", v, " ", graph.node(id).op->name);
}

}  // namespace tatara::sched
