// Floats that the tape computes: arithmetic on floats that vary, and counters that are kept in tensors (the steps of an
// optimizer). The trace knows their values in the present call; what decides by one takes the value, with a guard on the floats
// that it comes from, or breaks the graph.
#include <algorithm>
#include <unordered_set>

#include "capture/tracer_internal.h"

namespace tatara::capture {
namespace {

constexpr size_t kLongestHistory = 16;  // nodes behind a counter

/// A function of the module `operator`; they stay alive.
PyObject* operator_function(const char* name) {
  static PyObject* const module = PyImport_ImportModule("operator");
  const Ref function = module != nullptr ? attr_or_null(module, name) : Ref();
  return function.get();
}

bool is_counting(const std::string& name) {
  static const std::unordered_set<std::string> names = {
      "add",     "add_",     "__add__", "__iadd__", "sub",   "sub_",  "__sub__", "__isub__", "mul",          "mul_",
      "__mul__", "__imul__", "fill_",   "zero_",    "clone", "copy_", "tensor",  "zeros",    "scalar_tensor"};
  return names.contains(name);
}

}  // namespace

Ref Tracer::record_number(TapeNode node, double value) {
  Trace& t = *trace_;
  const Ref plain = Ref::steal(PyFloat_FromDouble(value));
  const int slot = t.tape.add_derived(plain.get());
  node.number = true;
  node.outputs = {slot};
  user_location(node.file, node.function, node.line);
  t.tape.add_node(std::move(node));
  return t.symbols.make_derived(value, slot);
}

bool Tracer::from_numbers(int slot) const {
  std::vector<int> wanted{slot};
  for (size_t i = 0; i < wanted.size(); ++i) {
    for (const TapeNode& node : trace_->tape.nodes()) {
      if (!node.number || node.outputs[0] != wanted[i]) continue;
      if (node.name == "number.item") return false;
      for_each_slot(node.args.get(), [&](int operand) { wanted.push_back(operand); });
    }
  }
  return true;
}

Ref Tracer::derive_number(const char* name, PyObject* a, PyObject* b, PyObject* function) {
  if (!tracing()) return {};
  Trace& t = *trace_;
  if (!t.tape.nodes().empty() && t.tape.nodes().back().done) return {};  // NumPy's
  std::vector<Ref> values, operands;
  for (PyObject* operand : {a, b}) {
    if (operand == nullptr) continue;
    if (is_symbolic_float(operand)) {
      values.push_back(Ref::steal(PyFloat_FromDouble(float_value(operand))));
      operands.push_back(make_slot_ref(float_slot(operand)));
    } else if (is_symbolic_int(operand)) {
      const Expr e = symbolic_expr(operand);
      values.push_back(Ref::steal(PyLong_FromLongLong(e.context().evaluate_hint(e).value())));
      operands.push_back(make_size_ref(e, t.symbols));
    } else if (PyFloat_CheckExact(operand) || PyLong_CheckExact(operand)) {
      const double value = PyFloat_AsDouble(operand);
      if (value == -1 && PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        return {};
      }
      values.push_back(Ref::borrow(operand));
      operands.push_back(Ref::borrow(operand));
    } else {
      return {};
    }
  }
  static const std::unordered_set<std::string> comparisons = {"lt", "le", "eq", "ne", "gt", "ge", "truth"};
  const bool check = function == nullptr && comparisons.contains(name);
  for (PyObject* operand : {a, b}) {
    if (check && operand != nullptr && is_symbolic_float(operand) && !from_numbers(float_slot(operand))) return {};
  }
  if (function == nullptr) function = operator_function(name);
  if (function == nullptr) return {};
  const Bypass bypass(bypass_);
  const Ref result =
      Ref::steal(b == nullptr ? PyObject_CallOneArg(function, values[0].get())
                              : PyObject_CallFunctionObjArgs(function, values[0].get(), values[1].get(), nullptr));
  if (!result || !(check ? PyBool_Check(result.get()) : PyFloat_CheckExact(result.get()))) {
    PyErr_Clear();  // an error, or a complex number: by value
    return {};
  }
  TapeNode node;
  node.func = Ref::borrow(function);
  node.name = std::string("number.") + name;
  node.args = b == nullptr ? Ref::steal(PyTuple_Pack(1, operands[0].get()))
                           : Ref::steal(PyTuple_Pack(2, operands[0].get(), operands[1].get()));
  if (check) {
    node.check = result.get() == Py_True ? 1 : 0;
    const Ref made = record_number(std::move(node), 0);
    return made ? result : Ref();
  }
  return record_number(std::move(node), PyFloat_AS_DOUBLE(result.get()));
}

void Tracer::need_number(int slot) {
  if (state_ != State::kTracing) return;
  Trace& t = *trace_;
  std::vector<int> wanted{slot}, sources;
  std::vector<Expr> sizes;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (t.tape.slots()[static_cast<size_t>(wanted[i])].input) {
      sources.push_back(wanted[i]);
      continue;
    }
    for (const TapeNode& node : t.tape.nodes()) {
      if (!node.number || node.outputs[0] != wanted[i]) continue;
      if (node.name == "number.item") {
        if (!graph_break("the value of a float that the graph computes")) PyErr_Clear();
        return;
      }
      for_each_slot(node.args.get(), [&](int operand) { wanted.push_back(operand); });
      for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(node.args.get()); ++k) {
        PyObject* operand = PyTuple_GET_ITEM(node.args.get(), k);
        if (is_size_ref(operand)) sizes.push_back(size_ref_expr(operand));
      }
    }
  }
  for (const int source : sources) specialize_slot(source);
  for (const Expr size : sizes) t.symbols.specialize(size);
}

Ref Tracer::value_of(int slot) {
  Trace& t = *trace_;
  const Tape& tape = t.tape;
  std::unordered_set<int> wanted{slot};
  std::vector<size_t> slice;
  for (size_t n = tape.nodes().size(); n-- > 0;) {
    const TapeNode& node = tape.nodes()[n];
    const bool makes = std::any_of(node.outputs.begin(), node.outputs.end(), [&](int o) { return wanted.contains(o); });
    if (!makes || node.number) continue;
    if (!is_counting(node.name) || slice.size() == kLongestHistory) return {};
    slice.push_back(n);
    for_each_slot(node.args.get(), [&](int operand) { wanted.insert(operand); });
    for_each_slot(node.kwargs.get(), [&](int operand) { wanted.insert(operand); });
  }
  std::vector<Ref> env(tape.slots().size());
  for (const int each : wanted) {
    const TapeSlot& info = tape.slots()[static_cast<size_t>(each)];
    if (info.number) {
      if (!PyFloat_CheckExact(info.object.get())) return {};
      env[static_cast<size_t>(each)] = info.object;
      continue;
    }
    if (info.requires_grad || PyTuple_GET_SIZE(info.sizes.get()) != 0) return {};
    if (!info.input) continue;
    env[static_cast<size_t>(each)] = Ref::steal(PyObject_CallMethod(info.object.get(), "clone", nullptr));
    if (!env[static_cast<size_t>(each)]) return {};
  }
  for (size_t i = slice.size(); i-- > 0;) {
    std::vector<Ref> results;
    const TapeNode& node = tape.nodes()[slice[i]];
    if (!Tape::call(node, env, t.symbols.hints(), results)) return {};
    for (size_t k = 0; k < node.outputs.size() && k < results.size(); ++k) {
      if (node.outputs[k] >= 0) env[static_cast<size_t>(node.outputs[k])] = results[k];
    }
  }
  const Ref& value = env[static_cast<size_t>(slot)];
  return value ? Ref::steal(PyObject_CallMethod(value.get(), "item", nullptr)) : Ref();
}

PyObject* Tracer::item_number(PyObject* func, PyObject* tensor) {
  Trace& t = *trace_;
  const int slot = api_.is_plain_tensor(tensor) ? t.tape.find(tensor) : -1;
  if (slot < 0) return nullptr;
  const Bypass bypass(bypass_);
  const TapeSlot info = t.tape.slots()[static_cast<size_t>(slot)];
  const Ref name = Ref::steal(PyObject_Str(info.dtype.get())), device = attr_or_null(info.device.get(), "type");
  const std::string dtype = text_of(name.get());
  Ref value;
  // Counters: what a program makes of other results is looked at in most cases.
  const bool real = dtype == "torch.float32" || dtype == "torch.float64";
  const bool whole = text_of(attr_or_null(func, "__name__").get()) == "__float__" && dtype == "torch.int64";
  if ((real || whole) && text_of(device.get()) == "cpu") value = value_of(slot);
  if (value && whole) value = Ref::steal(PyNumber_Float(value.get()));
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  if (!value || !PyFloat_CheckExact(value.get())) return nullptr;
  TapeNode node;
  node.func = Ref::borrow(func);
  node.name = "number.item";
  node.args = Ref::steal(PyTuple_Pack(1, make_slot_ref(slot).get()));
  return record_number(std::move(node), PyFloat_AS_DOUBLE(value.get())).release();
}

}  // namespace tatara::capture
