#include "capture/graph/tape_functions.h"

#include <algorithm>

#include "ops/rules/custom_gradient.h"
#include "support/error.h"

namespace tatara::capture {

void TapeFunctions::convert(const TapeNode& node, const std::function<void(const TapeNode&)>& convert_node) {
  const CustomBackward& custom = *function_end(node)->backward;
  std::vector<ValueId> values, operands;
  for (const int slot : node.outputs) values.push_back(c_.fz.read(c_.refs[static_cast<size_t>(slot)]));
  for (const int slot : custom.operands) operands.push_back(c_.fz.read(c_.refs[static_cast<size_t>(slot)]));
  const std::vector<ValueId> results = add_custom_gradient(c_.builder, values, operands);
  for (size_t i = 0; i < results.size(); ++i) {
    TensorRef& ref = c_.refs[static_cast<size_t>(node.outputs[i])];
    const TensorRef made = c_.fz.fresh(results[i]);
    renewed_.push_back({ref, c_.fz.version(ref), made, c_.fz.version(made)});
    ref = made;
  }
  const std::vector<int64_t> before = c_.versions();
  const size_t first = c_.made.graph.num_nodes();
  std::vector<ValueId> cotangents;
  for (const int slot : custom.cotangents) {
    cotangents.push_back(add_cotangent(c_.builder, c_.slot_type(slot)));
    c_.refs[static_cast<size_t>(slot)] = c_.fz.fresh(cotangents.back());
  }
  for (const TapeNode& each : custom.nodes) {
    c_.builder.set_no_grad(!each.grad);
    convert_node(each);
  }
  std::vector<ValueId> gradients;
  for (const int slot : custom.gradients) {
    gradients.push_back(slot < 0 ? kNoValue : c_.fz.read(c_.refs[static_cast<size_t>(slot)]));
  }
  const std::vector<int64_t> now = c_.versions();
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] >= 0 && now[i] != before[i]) throw Unsupported("a backward that writes to a tensor from before it");
  }
  cut_backward(c_.made.graph, first, results, cotangents, gradients);
  for (const int slot : custom.cotangents) c_.refs[static_cast<size_t>(slot)] = -1;
  for (const TapeNode& each : custom.nodes) {
    for (const int slot : each.outputs) {
      if (slot >= 0 && before[static_cast<size_t>(slot)] < 0) c_.refs[static_cast<size_t>(slot)] = -1;
    }
  }
}

void TapeFunctions::check(const std::vector<TensorRef>& wanted) const {
  for (const Renewed& each : renewed_) {
    bool shared = false;
    for (size_t i = 0; i < c_.refs.size(); ++i) {
      shared = shared || (c_.refs[i] >= 0 && c_.refs[i] != each.made && c_.fz.same_storage(c_.refs[i], each.raw));
    }
    if (!shared) continue;
    if (c_.fz.version(each.raw) != each.raw_version || c_.fz.version(each.made) != each.made_version) {
      throw Unsupported("a write to memory that a result of an autograd.Function shares with other tensors");
    }
    const bool leaves = std::any_of(wanted.begin(), wanted.end(),
                                    [&](TensorRef ref) { return ref >= 0 && c_.fz.same_storage(ref, each.made); });
    bool other = std::any_of(wanted.begin(), wanted.end(),
                             [&](TensorRef ref) { return ref >= 0 && c_.fz.same_storage(ref, each.raw); });
    for (const int slot : c_.made.inputs) {
      const TensorRef ref = slot >= 0 ? c_.refs[static_cast<size_t>(slot)] : -1;
      other = other || (ref >= 0 && c_.fz.same_storage(ref, each.raw));
    }
    if (leaves && other) throw Unsupported("a result of an autograd.Function that is a view of another tensor");
  }
}

}  // namespace tatara::capture
