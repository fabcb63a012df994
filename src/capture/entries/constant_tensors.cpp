#include "capture/entries/constant_tensors.h"

#include <algorithm>

#include "capture/entries/guards.h"
#include "capture/tape/node_operators.h"

namespace tatara::capture {
void ConstantTensors::advance(const Tape& tape) {
  env_.resize(tape.slots().size());
  symbolic_.resize(env_.size());
  for (; seen_ < tape.nodes().size(); ++seen_) {
    const TapeNode& node = tape.nodes()[seen_];
    const bool alone =
        is_operator_call(node) || is_numpy_operation(node) || number_operation(node) != nullptr || is_leaf_mark(node);
    bool constant = alone && !varies(node);
    bool symbolic = holds_size_ref(node.args.get()) || holds_size_ref(node.kwargs.get());
    const auto check = [&](int slot) {
      constant = constant && env_[static_cast<size_t>(slot)];
      symbolic = symbolic || symbolic_[static_cast<size_t>(slot)];
    };
    for_each_slot(node.args.get(), check);
    for_each_slot(node.kwargs.get(), check);
    std::vector<Ref> results;
    if (constant)
      constant = Tape::call(node, env_, tape.open_hints(), results) && results.size() >= node.outputs.size();
    if (!constant) {
      forget_error();
      // The write may reach any of them through a view.
      if (node.mutates || node.statistics) std::fill(env_.begin(), env_.end(), Ref());
      continue;
    }
    nodes_.push_back(seen_);
    // A write may reach any of them through a view.
    if (symbolic && node.mutates) std::fill(symbolic_.begin(), symbolic_.end(), true);
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] < 0) continue;
      env_[static_cast<size_t>(node.outputs[k])] = results[k];
      symbolic_[static_cast<size_t>(node.outputs[k])] = symbolic;
    }
  }
}

bool ConstantTensors::symbolic(PyObject* arguments) const {
  bool any = holds_size_ref(arguments);
  for_each_slot(arguments, [&](int slot) { any = any || symbolic_[static_cast<size_t>(slot)]; });
  return any;
}

std::shared_ptr<ConstantGuard> ConstantTensors::guard(const Tape& tape, PyObject* func, Ref args, Ref kwargs,
                                                      PyObject* result) const {
  // Backwards from the arguments; all of them when one writes, which views may see.
  std::vector<bool> needed(env_.size());
  const auto need = [&needed](int slot) { needed[static_cast<size_t>(slot)] = true; };
  for_each_slot(args.get(), need);
  for_each_slot(kwargs.get(), need);
  const bool all = std::any_of(nodes_.begin(), nodes_.end(), [&](size_t n) { return tape.nodes()[n].mutates; });
  std::vector<TapeNode> nodes;
  for (auto it = nodes_.rbegin(); it != nodes_.rend(); ++it) {
    const TapeNode& node = tape.nodes()[*it];
    const bool wanted = std::any_of(node.outputs.begin(), node.outputs.end(),
                                    [&](int slot) { return slot >= 0 && needed[static_cast<size_t>(slot)]; });
    if (!all && !wanted) continue;
    for_each_slot(node.args.get(), need);
    for_each_slot(node.kwargs.get(), need);
    nodes.insert(nodes.begin(), node);
  }
  return std::make_shared<ConstantGuard>(std::move(nodes), env_.size(), Ref::borrow(func), std::move(args),
                                         std::move(kwargs), Ref::borrow(result));
}

bool ConstantGuard::holds(std::span<const int64_t> symbols) {
  constexpr size_t kMaxKnown = 1024;
  std::vector<int64_t> key(symbols.begin(), symbols.end());
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  const ErrorAside aside;
  const bool result = evaluate(symbols);
  forget_error();
  if (known_.size() >= kMaxKnown) known_.clear();
  known_[std::move(key)] = result;
  return result;
}

bool ConstantGuard::evaluate(std::span<const int64_t> symbols) const {
  std::vector<Ref> env(slots_), results;
  for (const TapeNode& node : nodes_) {
    if (!Tape::call(node, env, symbols, results) || results.size() < node.outputs.size()) return false;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] >= 0) env[static_cast<size_t>(node.outputs[k])] = results[k];
    }
  }
  TapeNode call;
  call.func = func_;
  call.args = args_;
  call.kwargs = kwargs_;
  const Ref answer = Tape::call_object(call, env, symbols);
  if (!answer || Py_TYPE(answer.get()) != Py_TYPE(expected_.get())) return false;
  return same_value(answer.get(), expected_.get()) ||
         PyObject_RichCompareBool(answer.get(), expected_.get(), Py_EQ) == 1;
}

std::string ConstantGuard::str() const {
  const Ref text = Ref::steal(PyObject_Repr(expected_.get()));
  if (!text) forget_error();
  const std::string place =
      nodes_.empty() || nodes_.back().location.line == 0
          ? std::string()
          : " at " + nodes_.back().location.file + ":" + std::to_string(nodes_.back().location.line);
  return name_of(func_.get()) + " of a tensor made from sizes" + place + " is " + text_of(text.get());
}

Ref ConstantTensors::evaluate(const Tape& tape, PyObject* arguments) {
  advance(tape);
  bool constant = true;
  for_each_slot(arguments, [&](int slot) { constant = constant && env_[static_cast<size_t>(slot)]; });
  if (!constant) return {};
  return map_structure(arguments, [this, &tape](PyObject* object) {
    if (is_size_ref(object)) return size_ref_value(object, tape.open_hints());
    const int slot = slot_of(object);
    return slot < 0 ? Ref::borrow(object) : env_[static_cast<size_t>(slot)];
  });
}

}  // namespace tatara::capture
