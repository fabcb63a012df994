#include "capture/constant_tensors.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace tatara::capture {
namespace {

/// Results differ from call to call, or hold what was in memory before.
bool varies(std::string_view name) {
  static constexpr std::array<std::string_view, 12> kParts = {"rand",    "dropout", "bernoulli",   "normal",
                                                              "uniform", "poisson", "multinomial", "exponential",
                                                              "cauchy",  "empty",   "geometric",   "rrelu"};
  return std::any_of(kParts.begin(), kParts.end(),
                     [name](std::string_view part) { return name.find(part) != std::string_view::npos; }) ||
         name == "scaled_dot_product_attention";
}

}  // namespace

void ConstantTensors::advance(const Tape& tape) {
  env_.resize(tape.slots().size());
  for (; seen_ < tape.nodes().size(); ++seen_) {
    const TapeNode& node = tape.nodes()[seen_];
    bool constant = !varies(node.name);
    const auto check = [&](int slot) { constant = constant && env_[static_cast<size_t>(slot)]; };
    for_each_slot(node.args.get(), check);
    for_each_slot(node.kwargs.get(), check);
    std::vector<Ref> results;
    if (constant) constant = Tape::call(node, env_, results) && results.size() >= node.outputs.size();
    if (!constant) {
      if (PyErr_Occurred() != nullptr) PyErr_Clear();
      // The write may reach any of them through a view.
      if (node.mutates || node.name.find("batch_norm") != std::string::npos) std::fill(env_.begin(), env_.end(), Ref());
      continue;
    }
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] >= 0) env_[static_cast<size_t>(node.outputs[k])] = results[k];
    }
  }
}

Ref ConstantTensors::evaluate(const Tape& tape, PyObject* arguments) {
  advance(tape);
  bool constant = true;
  for_each_slot(arguments, [&](int slot) { constant = constant && env_[static_cast<size_t>(slot)]; });
  if (!constant) return {};
  return map_structure(arguments, [this](PyObject* object) {
    const int slot = slot_of(object);
    return slot < 0 ? Ref::borrow(object) : env_[static_cast<size_t>(slot)];
  });
}

}  // namespace tatara::capture
