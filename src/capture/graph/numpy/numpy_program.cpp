#include "capture/graph/numpy/numpy_program.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "capture/graph/numpy/numpy_graph.h"
#include "runtime/host/torch_abi.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

/// What of the tape's calls is the same in each run: made of constants alone, as they are before somebody writes to them.
class ConstantSlots {
 public:
  explicit ConstantSlots(const Tape& tape) : tape_(tape), env_(tape.slots().size()), memory_(tape.slots().size()) {
    std::iota(memory_.begin(), memory_.end(), 0);
    for (const TapeNode& node : tape.nodes()) {
      bool constant = !node.mutates && !node.outputs.empty();
      each_slot(node, [&](int slot) { constant = constant && static_cast<bool>(env_[static_cast<size_t>(slot)]); });
      constant_.push_back(constant && run(node));
      for (const int slot : node.outputs) {
        const TapeSlot& made = tape.slots()[static_cast<size_t>(slot)];
        if (made.fresh || made.scalar) continue;
        each_slot(node, [&](int operand) { join(slot, operand); });
      }
      if (node.mutates) each_slot(node, [&](int slot) { forget(slot); });
    }
  }
  /// What the node gives as its k-th result; null: that is not the same in each run.
  PyObject* value(const TapeNode& node, size_t k) const {
    const auto n = static_cast<size_t>(&node - tape_.nodes().data());
    return constant_[n] ? kept_.at(n)[k].get() : nullptr;
  }

 private:
  template <typename Fn>
  static void each_slot(const TapeNode& node, const Fn& fn) {
    for_each_slot(node.args.get(), fn);
    if (node.kwargs) for_each_slot(node.kwargs.get(), fn);
  }
  bool run(const TapeNode& node) {
    std::vector<Ref> results;
    if (!Tape::call(node, env_, {}, results) || results.size() != node.outputs.size()) {
      forget_error();
      return false;
    }
    for (size_t k = 0; k < results.size(); ++k) env_[static_cast<size_t>(node.outputs[k])] = results[k];
    kept_[static_cast<size_t>(&node - tape_.nodes().data())] = std::move(results);
    return true;
  }
  /// The slots may share memory.
  void join(int a, int b) {
    const int from = memory_[static_cast<size_t>(a)], to = memory_[static_cast<size_t>(b)];
    std::replace(memory_.begin(), memory_.end(), from, to);
  }
  void forget(int slot) {
    for (size_t s = 0; s < memory_.size(); ++s) {
      if (memory_[s] == memory_[static_cast<size_t>(slot)]) env_[s] = Ref();
    }
  }

  const Tape& tape_;
  std::vector<Ref> env_;
  std::vector<int> memory_;
  std::vector<bool> constant_;
  std::map<size_t, std::vector<Ref>> kept_;
};

class ProgramWriter {
 public:
  ProgramWriter(const Tape& tape, const NumpyApi& np, PyObject* value)
      : tape_(tape), graph_(tape, np, NumpyGraph::For::kTensors), constants_(tape), value_(value) {
    for (const TapeNode& node : tape.nodes()) graph_.add(node);
    made_.emplace(graph_.finish(computed_outputs(tape)));
  }

  Ref write() {
    const Graph& graph = made_->graph;
    for (const Node& node : graph.nodes()) {
      if (!(node.op == &NumpyGraph::call_operator() ? add_call(node) : add_operator(node))) return {};
    }
    const std::vector<int> slots = input_slots(tape_);
    const Ref inputs = list(made_->inputs.size(), [&](size_t i) {
      const auto at = std::find(slots.begin(), slots.end(), made_->inputs[i]) - slots.begin();
      return Ref::steal(Py_BuildValue("(Nn)", value(graph.inputs()[i]).release(), static_cast<Py_ssize_t>(at)));
    });
    const Ref outputs = list(made_->outputs.size(), [&](size_t i) { return value(graph.outputs()[i].value); });
    const Ref writes = list(graph.input_writes().size(), [&](size_t i) {
      const InputWrite& write = graph.input_writes()[i];
      for (size_t k = 0; k < made_->outputs.size(); ++k) {
        const OutputAlias& alias = graph.outputs()[k].alias;
        if (alias.kind == OutputAlias::Kind::kInput && alias.index == write.input_index) {
          throw Unsupported("a result that is a view of an argument to which the function writes");
        }
      }
      return Ref::steal(
          Py_BuildValue("(nN)", static_cast<Py_ssize_t>(write.input_index), value(write.value).release()));
    });
    if (!inputs || !outputs || !writes) return {};
    return Ref::steal(Py_BuildValue("{s:O,s:O,s:O,s:O,s:O}", "inputs", inputs.get(), "steps", steps_.get(), "outputs",
                                    outputs.get(), "writes", writes.get(), "constants", held_.get()));
  }

 private:
  /// A list of what fn gives, or null.
  template <typename Fn>
  static Ref list(size_t count, const Fn& fn) {
    Ref items = Ref::steal(PyList_New(0));
    for (size_t i = 0; i < count && items; ++i) {
      const Ref item = fn(i);
      if (!item || PyList_Append(items.get(), item.get()) != 0) return {};
    }
    return items;
  }
  Ref value(ValueId id) const {
    if (id == kNoValue) return Ref::borrow(Py_None);
    return Ref::steal(PyObject_CallFunction(value_, "i", static_cast<int>(id)));
  }
  static Ref text(std::string_view s) {
    return Ref::steal(PyUnicode_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size())));
  }
  static Ref integers(const std::vector<Expr>& values) {
    const Ref items =
        list(values.size(), [&](size_t i) { return Ref::steal(PyLong_FromLongLong(values[i].const_value())); });
    return items ? Ref::steal(PyList_AsTuple(items.get())) : Ref();
  }

  static Ref number(const Scalar& scalar) {
    struct Visitor {
      Ref operator()(bool v) const { return Ref::steal(PyBool_FromLong(v ? 1 : 0)); }
      Ref operator()(int64_t v) const { return Ref::steal(PyLong_FromLongLong(v)); }
      Ref operator()(double v) const { return Ref::steal(PyFloat_FromDouble(v)); }
      Ref operator()(const std::complex<double>& v) const {
        return Ref::steal(PyComplex_FromDoubles(v.real(), v.imag()));
      }
      Ref operator()(const Expr& v) const { return Ref::steal(PyLong_FromLongLong(v.const_value())); }
    };
    return std::visit(Visitor(), scalar);
  }

  /// Kind and value of an argument.
  std::pair<const char*, Ref> argument(const Arg& arg) const {
    if (const auto* tensor = std::get_if<TensorArg>(&arg)) return {"value", value(tensor->value)};
    if (const auto* values = std::get_if<TensorList>(&arg)) {
      return {"values", list(values->values.size(), [&](size_t i) { return value(values->values[i]); })};
    }
    if (const auto* scalar = std::get_if<Scalar>(&arg)) return {"number", number(*scalar)};
    if (const auto* sizes = std::get_if<SymInts>(&arg)) return {"number", integers(sizes->values)};
    if (const auto* dtype = std::get_if<DType>(&arg)) return {"dtype", text(torch_abi::dtype_attribute(*dtype))};
    if (std::holds_alternative<Device>(arg)) return {"device", Ref::borrow(Py_None)};
    if (const auto* word = std::get_if<std::string>(&arg)) return {"text", text(*word)};
    if (std::holds_alternative<NoneArg>(arg)) return {"none", Ref::borrow(Py_None)};
    throw Unsupported("a list of numbers as argument of an operator");
  }

  Ref results(const Node& node) const {
    return list(node.outputs.size(), [&](size_t i) {
      const TensorType& type = made_->graph.type(node.outputs[i]);
      const Ref sizes = integers(type.sizes);
      return Ref::steal(Py_BuildValue("(NsO)", value(node.outputs[i]).release(), torch_abi::dtype_attribute(type.dtype),
                                      sizes.get()));
    });
  }

  bool add_step(const Node& node, const Ref& op, const std::string& names, const Ref& arguments) {
    const Ref made = results(node);
    if (!made || !arguments) return false;
    const SourceLocation& place = node.location;
    const Ref step = Ref::steal(Py_BuildValue("(OsOOsi)", op.get(), names.c_str(), arguments.get(), made.get(),
                                              place.file != nullptr ? place.file->c_str() : "", place.line));
    return step && PyList_Append(steps_.get(), step.get()) == 0;
  }

  bool add_operator(const Node& node) {
    const Ref arguments = list(node.args.size(), [&](size_t i) {
      const ArgSpec& spec = node.op->schema.args[i];
      const auto [kind, given] = argument(node.args[i]);
      return Ref::steal(
          Py_BuildValue("(sOsO)", spec.name.c_str(), spec.keyword_only ? Py_True : Py_False, kind, given.get()));
    });
    return add_step(node, text(node.op->name), node.op->names, arguments);
  }

  bool add_call(const Node& node) {
    const NumpyGraph::Call& call = graph_.calls().at(node.outputs[0]);
    const TapeNode& made = *call.node;
    for (size_t k = 0; constants_.value(made, k) != nullptr; ++k) {
      const Ref number = Ref::steal(PyLong_FromLong(node.outputs[k]));
      if (PyDict_SetItem(held_.get(), number.get(), constants_.value(made, k)) != 0) return false;
      if (k + 1 == node.outputs.size()) return true;
    }
    const std::vector<ValueId>& values = std::get<TensorList>(node.args[0]).values;
    size_t next = 0;
    const auto fill = [&](PyObject* o) { return slot_of(o) >= 0 ? value(values[next++]) : Ref::borrow(o); };
    const Ref args = map_structure(made.args.get(), fill);
    const Ref kwargs = made.kwargs ? map_structure(made.kwargs.get(), fill) : Ref::steal(PyDict_New());
    if (!args || !kwargs) return false;
    const Ref both = Ref::steal(PyTuple_Pack(2, args.get(), kwargs.get()));
    return add_step(node, Ref::borrow(Py_None), made.name, both);
  }

  const Tape& tape_;
  NumpyGraph graph_;
  ConstantSlots constants_;
  PyObject* value_;
  std::optional<TapeGraph> made_;
  Ref steps_ = Ref::steal(PyList_New(0)), held_ = Ref::steal(PyDict_New());
};

}  // namespace

Ref numpy_program(const Tape& tape, const NumpyApi& np, PyObject* value) {
  return ProgramWriter(tape, np, value).write();
}

}  // namespace tatara::capture
