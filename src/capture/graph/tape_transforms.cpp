#include "capture/graph/tape_transforms.h"

#include <algorithm>
#include <optional>

#include "capture/graph/tape_arguments.h"
#include "ops/core/family_util.h"
#include "support/error.h"
#include "transforms/forward.h"

namespace tatara::capture {

std::vector<TapeTransforms::TensorRef> TapeTransforms::results_of(const TapeNode& node, std::vector<TensorType> types) {
  switch (step_of(node)) {
    case FuncStep::kEnter: enter(node); return {};
    case FuncStep::kExit:
      if (node.name != "exit_dual") history_.exit_level();
      return {};
    case FuncStep::kWrap: return {alias(operand(node))};
    case FuncStep::kUnwrap: return {operand(node)};
    case FuncStep::kVariable: history_.add_variable(slot_of(PyTuple_GET_ITEM(node.args.get(), 0))); return {};
    case FuncStep::kBatchIn: return {one_example(node)};
    case FuncStep::kBatchOut: return {all_examples(node)};
    case FuncStep::kMakeDual: return {make_dual(node)};
    case FuncStep::kUnpackDual: return unpack_dual(node, std::move(types));
    case FuncStep::kNone: break;
  }
  throw InternalError("no step of a transform: " + node.name);
}

TapeTransforms::TensorRef TapeTransforms::operand(const TapeNode& node, Py_ssize_t place) const {
  return refs_[static_cast<size_t>(slot_of(PyTuple_GET_ITEM(node.args.get(), place)))];
}

Expr TapeTransforms::batch_size(const TapeNode& node) {
  PyObject* o = PyTuple_GET_ITEM(node.args.get(), 1);
  ExprContext& ctx = builder_.ctx();
  return is_size_ref(o) ? size_in(ctx, size_ref_expr(o)) : ctx.constant(int_value(o));
}

TapeTransforms::TensorRef TapeTransforms::alias(TensorRef of) {
  return fz_.apply(OpRegistry::global().get("alias"), {TensorArg{of}}).front();
}

void TapeTransforms::enter(const TapeNode& node) {
  if (node.name == "enter_dual") return;
  // Not counted: a part of a tape may begin behind other levels.
  const int level = transform_step(node)->number;
  history_.enter_level(level, node.name == "enter_vmap");
  if (node.name != "enter_vmap") return;
  const std::string text = text_of(PyTuple_GET_ITEM(node.args.get(), 1));
  randomness_[level] = text == "different" ? Randomness::kDifferent
                       : text == "same"    ? Randomness::kSame
                                           : Randomness::kError;
}

TapeTransforms::TensorRef TapeTransforms::one_example(const TapeNode& node) {
  const auto randomness = randomness_.find(node.level);
  if (randomness == randomness_.end()) throw InternalError("an example of a batch outside of its level");
  const ValueId one =
      add_batch_in(builder_, fz_.read(operand(node)), transform_step(node)->dim, node.level, randomness->second);
  examples_.push_back(fz_.fresh(one));
  history_.add_example(examples_.back());
  return examples_.back();
}

TapeTransforms::TensorRef TapeTransforms::all_examples(const TapeNode& node) {
  const TensorRef one = operand(node);
  const auto shares = [&](TensorRef other) { return fz_.same_storage(other, one); };
  if (std::any_of(examples_.begin(), examples_.end(), shares)) {
    throw Unsupported("an example of a batch, or a view of it, is a result of vmap");
  }
  if (std::any_of(finished_.begin(), finished_.end(), shares)) throw Unsupported("two results of vmap share memory");
  finished_.push_back(one);
  return fz_.fresh(add_batch_out(builder_, fz_.read(one), transform_step(node)->dim, node.level, batch_size(node)));
}

TapeTransforms::TensorRef TapeTransforms::make_dual(const TapeNode& node) {
  const TensorRef dual = alias(operand(node));
  const ValueId value = fz_.read(dual);
  ValueId tangent = fz_.read(operand(node, 1));
  const TensorType type = builder_.type(value);
  const TangentIs is = transform_step(node)->tangent;
  if (is == TangentIs::kCopied) {
    std::vector<Expr> strides = ops::dense_strides(builder_.ctx(), type);
    if (strides.empty()) strides = builder_.type(tangent).strides;
    tangent = builder_.op("relayout", {TensorArg{tangent}, SymInts{std::move(strides)}});
  }
  duals_[node.level].push_back({value, tangent, dual, operand(node, 1), is, transform_step(node)->whole});
  history_.add_level_value(value);
  return dual;
}

std::vector<ValueId> TapeTransforms::tangents(const TapeNode& node, TensorType type) {
  TangentsCall call;
  call.roots = {fz_.read(operand(node))};
  for (const Dual& dual : duals_[node.level]) {
    call.variables.push_back(dual.value);
    call.tangents.push_back(dual.tangent);
  }
  call.stops = unpacked_[node.level];
  call.histories = history_.starts();
  return add_tangents(builder_, call, {std::move(type)});
}

/// Of the copy of a view of a dual tensor. In eager its tangent is that view of the tangent, where this lies as the copy does in a
/// storage as large.
OutputAlias::Sharing TapeTransforms::sharing_of_copy(int level, TensorRef root) {
  const Graph& graph = builder_.graph();
  const ValueId copy = fz_.base(root);
  const Node* node = graph.producer(copy);
  if (node == nullptr || node->op->traits.hands_tangent_on) return OutputAlias::Sharing::kNone;  // fmod and its kind
  do {
    const auto* operand = node->args.empty() ? nullptr : std::get_if<TensorArg>(&node->args[0]);
    if (operand == nullptr) break;
    const ValueId below = operand->value;
    for (const Dual& dual : duals_[level]) {
      if (dual.value != below || dual.is != TangentIs::kGiven) continue;
      return dual.whole ? OutputAlias::Sharing::kMay : OutputAlias::Sharing::kOwn;
    }
    node = graph.producer(below);
  } while (node != nullptr && node->op->kind == OpKind::kView);
  return OutputAlias::Sharing::kNone;
}

/// Of the tangent of `root`. In eager it is a view where the primal is one of a dual tensor.
OutputAlias::Sharing TapeTransforms::sharing_of(int level, TensorRef root) {
  using Sharing = OutputAlias::Sharing;
  std::optional<TangentIs> is;
  for (const Dual& dual : duals_[level]) {
    if (!fz_.same_storage(dual.tensor, root)) continue;
    if (dual.is == TangentIs::kCopied && !ops::is_dense(builder_.ctx(), builder_.type(dual.value))) {
      throw Unsupported("a tangent that lies in memory as a primal with gaps");
    }
    is = is && (*is != dual.is || dual.is == TangentIs::kCopied) ? TangentIs::kUnknown : dual.is;
  }
  const Node* maker = builder_.graph().producer(fz_.base(root));
  const bool handed =
      (maker != nullptr && maker->op->traits.hands_tangent_on) ||
      std::any_of(handed_.begin(), handed_.end(), [&](TensorRef each) { return fz_.same_storage(each, root); });
  if (!is && handed) return sharing_of_copy(level, root);
  if (is == TangentIs::kUnknown) return Sharing::kNone;
  return is == TangentIs::kGiven ? Sharing::kMay : Sharing::kOwn;
}

int TapeTransforms::group_of(int level, TensorRef root) {
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].first == level && fz_.same_storage(groups_[i].second, root)) return static_cast<int>(i);
  }
  groups_.emplace_back(level, root);
  return static_cast<int>(groups_.size()) - 1;
}

std::vector<TapeTransforms::TensorRef> TapeTransforms::unpack_dual(const TapeNode& node,
                                                                   std::vector<TensorType> types) {
  for (const Dual& dual : duals_[node.level]) {
    // In eager a write goes to the tangent too, which may be a tensor of the caller's.
    if (fz_.read(dual.tensor) != dual.value) throw Unsupported("a write to a dual tensor");
  }
  std::vector<TensorRef> results{alias(operand(node))};
  unpacked_[node.level].push_back(fz_.read(results[0]));
  if (types.size() > 1) {
    results.push_back(fz_.fresh(tangents(node, std::move(types[1])).front()));
    std::vector<TensorRef> given;
    for (const Dual& dual : duals_[node.level]) given.push_back(dual.given);
    const OutputAlias::Sharing sharing = sharing_of(node.level, results[0]);
    const bool known = sharing != OutputAlias::Sharing::kNone;
    history_.note_pass({results.back()}, given, sharing, known ? group_of(node.level, results[0]) : -1);
  }
  return results;
}

}  // namespace tatara::capture
