#include "capture/run/replay.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "capture/host/package.h"

namespace tatara::capture {
namespace {

using Code = std::function<Ref(PyObject* args)>;

PyObject* call_code(PyObject* capsule, PyObject* args) {
  const auto* code = static_cast<const Code*>(PyCapsule_GetPointer(capsule, nullptr));
  return code == nullptr ? nullptr : (*code)(args).release();
}

/// A Python callable. Null with a Python error set.
Ref callable_of(Code code) {
  static PyMethodDef method = {"replayed", call_code, METH_VARARGS, nullptr};
  auto held = std::make_unique<Code>(std::move(code));
  const auto drop = [](PyObject* capsule) { delete static_cast<Code*>(PyCapsule_GetPointer(capsule, nullptr)); };
  const Ref capsule = Ref::steal(PyCapsule_New(held.get(), nullptr, drop));
  if (!capsule) return {};
  held.release();
  return Ref::steal(PyCFunction_New(&method, capsule.get()));
}

/// The end of the region that begins at a node; 0: none.
size_t end_of_region(const Tape& tape, size_t begin) {
  int depth = 0;
  for (size_t n = begin; n < tape.nodes().size(); ++n) {
    const RegionMark* mark = region_mark(tape.nodes()[n]);
    if (mark == nullptr) continue;
    depth += mark->begins ? 1 : -1;
    if (depth == 0) return n;
  }
  return 0;
}

/// What nodes read that they do not make.
std::set<int> read_by(std::span<const TapeNode> nodes) {
  std::set<int> made, read;
  for (const TapeNode& node : nodes) {
    const auto look = [&](int slot) {
      if (!made.contains(slot)) read.insert(slot);
    };
    for_each_slot(node.args.get(), look);
    for_each_slot(node.kwargs.get(), look);
    if (const FunctionEnd* end = function_end(node)) {
      read.merge(read_by(end->backward->nodes));
      for (const int slot : end->backward->operands) look(slot);
    }
    made.insert(node.outputs.begin(), node.outputs.end());
  }
  for (const int slot : made) read.erase(slot);
  return read;
}

Ref tuple_of_slots(const std::vector<int>& slots, const std::vector<Ref>& env) {
  Ref tuple = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(slots.size())));
  for (size_t i = 0; tuple && i < slots.size(); ++i) {
    PyObject* const value = slots[i] < 0 ? Py_None : env[static_cast<size_t>(slots[i])].get();
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), Py_NewRef(value == nullptr ? Py_None : value));
  }
  return tuple;
}

}  // namespace

struct Replay::Calls {
  std::shared_ptr<const Tape> tape;
  std::vector<int64_t> symbols;

  static Saved save(const std::set<int>& slots, const std::vector<Ref>& env) {
    Saved found;
    for (const int slot : slots) {
      if (env[static_cast<size_t>(slot)]) found.emplace_back(slot, env[static_cast<size_t>(slot)]);
    }
    return found;
  }
  std::vector<Ref> restore(const Saved& values) const {
    std::vector<Ref> env(tape->slots().size());
    for (const auto& [slot, value] : values) env[static_cast<size_t>(slot)] = value;
    return env;
  }
  /// Of the operands. `given` goes to the slots `places`. Null with a Python error set.
  Ref gradients(const CustomBackward& rule, const Saved& values, const std::vector<int>& places,
                PyObject* given) const {
    std::vector<Ref> env = restore(values);
    for (size_t i = 0; i < places.size(); ++i) {
      env[static_cast<size_t>(places[i])] = Ref::borrow(PyTuple_GET_ITEM(given, static_cast<Py_ssize_t>(i)));
    }
    const TorchApi& api = *TorchApi::get();
    const bool enabled = api.grad_enabled();
    for (const TapeNode& node : rule.nodes) {
      const GradientsSet mode(api, enabled && node.mode);
      std::vector<Ref> results;
      if (!Tape::call(node, env, symbols, results)) return {};
      for (size_t k = 0; k < node.outputs.size() && k < results.size(); ++k) {
        if (node.outputs[k] >= 0) env[static_cast<size_t>(node.outputs[k])] = results[k];
      }
    }
    return tuple_of_slots(rule.gradients, env);
  }
};

bool Replay::possible(const Tape& tape) {
  return std::none_of(tape.nodes().begin(), tape.nodes().end(), [&tape](const TapeNode& node) {
    // A pass that gives variables their `.grad`, or calls hooks, would do so twice.
    const GradientPass* pass = engine_pass(node);
    const bool writes = pass != nullptr && (pass->hooks || pass->accumulates);
    const RegionMark* mark = region_mark(node);
    return is_leaf_mark(node) || writes || (mark != nullptr && (mark->redraws || mark->reentrant)) ||
           (tape.has_transforms() && (function_end(node) != nullptr || mark != nullptr));
  });
}

bool Replay::cuts_region(const Tape& tape, size_t cut) {
  int depth = 0;
  for (size_t n = 0; n < cut; ++n) {
    if (const RegionMark* mark = region_mark(tape.nodes()[n])) depth += mark->begins ? 1 : -1;
  }
  return depth != 0;
}

Replay::Replay(std::shared_ptr<const Tape> tape, std::vector<int64_t> symbols)
    : calls_(std::make_shared<Calls>(Calls{std::move(tape), std::move(symbols)})) {}

bool Replay::run(std::vector<Ref>& env, size_t first, size_t last) const {
  const Tape& tape = *calls_->tape;
  const std::vector<TapeNode>& nodes = tape.nodes();
  size_t plain = first;
  std::vector<int64_t> symbols = calls_->symbols;
  const auto run_until = [&](size_t end) { return tape.run_nodes(env, plain, end, symbols, true); };
  for (size_t n = first; n < last; ++n) {
    const RegionMark* mark = region_mark(nodes[n]);
    const bool region = mark != nullptr && mark->begins;
    if (!region && function_end(nodes[n]) == nullptr) continue;
    if (!run_until(n)) return false;
    const size_t end = region ? end_of_region(tape, n) : n;
    if (region ? !run_region(env, n, end) : !attach_backward(nodes[n], env)) return false;
    plain = end + 1;
    n = end;
  }
  return run_until(last);
}

bool Replay::attach_backward(const TapeNode& node, std::vector<Ref>& env) const {
  const std::shared_ptr<const CustomBackward> rule = function_end(node)->backward;
  std::set<int> read = read_by(rule->nodes);
  read.insert(rule->gradients.begin(), rule->gradients.end());
  read.erase(-1);
  // Tensors are saved by the node, as what ctx.save_for_backward() was given.
  Saved others;
  std::vector<int> places;
  for (const int slot : read) {
    const Ref& value = env[static_cast<size_t>(slot)];
    if (value && TorchApi::get()->is_tensor(value.get())) {
      places.push_back(slot);
    } else if (value) {
      others.emplace_back(slot, value);
    }
  }
  const Ref saved = tuple_of_slots(places, env);
  places.insert(places.end(), rule->cotangents.begin(), rule->cotangents.end());
  const Ref backward = callable_of([calls = calls_, rule, places, others](PyObject* given) {
    return calls->gradients(*rule, others, places, given);
  });
  if (!backward || !saved) return false;
  const Ref operands = tuple_of_slots(rule->operands, env), results = tuple_of_slots(node.outputs, env);
  const GradientsSet on(*TorchApi::get(), true);
  const Ref found = is_hook(node) ? call_package<PackageFunction::kHookAgain>(backward.get(), results.get())
                                  : call_package<PackageFunction::kFunctionAgain>(backward.get(), operands.get(),
                                                                                  results.get(), saved.get());
  if (!found) return false;
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    if (node.outputs[k] < 0) continue;
    env[static_cast<size_t>(node.outputs[k])] = Ref::borrow(PyTuple_GET_ITEM(found.get(), static_cast<Py_ssize_t>(k)));
  }
  return true;
}

bool Replay::run_region(std::vector<Ref>& env, size_t begin, size_t end) const {
  const Ref given = tuple_of_slots(region_mark(calls_->tape->nodes()[begin])->given, env);
  const std::span<const TapeNode> inside(calls_->tape->nodes().data() + begin + 1, end - begin - 1);
  const Ref compute = callable_of([*this, begin, end, values = Calls::save(read_by(inside), env)](PyObject*) {
    std::vector<Ref> twin = calls_->restore(values);
    return run(twin, begin + 1, end) ? Ref::borrow(Py_None) : Ref();
  });
  if (!compute || !given) return false;
  const Ref region = call_package<PackageFunction::kCheckpointAgain>(compute.get(), given.get());
  if (!region) return false;
  if (run(env, begin + 1, end)) return static_cast<bool>(Ref::steal(PyObject_CallMethod(region.get(), "end", nullptr)));
  const ErrorAside aside;
  if (!Ref::steal(PyObject_CallMethod(region.get(), "abandon", nullptr))) forget_error();
  return false;
}

}  // namespace tatara::capture
