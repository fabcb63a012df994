// Floats that the tape computes: arithmetic on floats that vary, and counters that are kept in tensors (the steps of an
// optimizer). The trace knows their values in the present call; what decides by one takes the value, which is guarded, or breaks
// the graph where a tensor decides it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "capture/host/known_calls.h"
#include "capture/numbers/comparisons.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/value_tracing.h"

namespace tatara::capture {
namespace {

constexpr size_t kLongestHistory = 16;  // nodes behind a counter
constexpr const char* kItem = "number.item";

/// A function of the module `operator`; they stay alive.
PyObject* operator_function(const char* name) {
  static PyObject* const module = PyImport_ImportModule("operator");
  const Ref function = module != nullptr ? attr_or_null(module, name) : Ref();
  return function.get();
}

bool fits_word(PyObject* number) {
  int overflow = 0;
  static_cast<void>(PyLong_AsLongLongAndOverflow(number, &overflow));
  return overflow == 0;
}

bool is_optimizer(const PyCodeObject* code) {
  return text_of(code->co_filename).find("/torch/optim/") != std::string::npos;
}

bool is_counting(const std::string& name) { return known_torch(name).is(kCountsSteps); }

}  // namespace

int NumberTracing::record_number_node(TapeNode node, PyObject* value, Ref guarded) {
  Trace& t = *trace_;
  const int slot = t.tape.add_derived(value);
  for_each_slot(node.args.get(), [&](int operand) {
    if (!from_numbers(operand)) own_.of_tensors.insert(slot);
    if (own_.rounded.contains(operand)) own_.rounded.insert(slot);
    if (own_.read.contains(operand)) own_.read.insert(slot);
  });
  node.kind = NumberOperation{std::move(guarded)};
  if (node.name == kItem || draws_by_numpy(node)) own_.of_tensors.insert(slot);
  if (node.name == "number.pow") own_.rounded.insert(slot);
  node.outputs = {slot};
  node.location = user_location();
  t.tape.add_node(std::move(node));
  return slot;
}

Ref NumberTracing::record_number(TapeNode node, PyObject* value) {
  const int slot = record_number_node(std::move(node), value);
  TraceSymbols& symbols = trace_->symbols;
  return PyFloat_CheckExact(value) ? symbols.make_derived(value, slot) : symbols.make_derived_int(value, slot);
}

bool NumberTracing::from_numbers(int slot) const { return !own_.of_tensors.contains(slot); }

bool NumberTracing::number_operand(PyObject* operand, Ref& value, Ref& on_tape, bool& of_tensor) {
  Trace& t = *trace_;
  if (is_symbolic_float(operand) || is_derived_int(operand)) {
    const bool real = is_symbolic_float(operand);
    const int slot = real ? float_slot(operand) : derived_int_slot(operand);
    value = real ? Ref::steal(PyFloat_FromDouble(float_value(operand))) : derived_int_value(operand, false);
    on_tape = make_slot_ref(slot);
    of_tensor = of_tensor || !from_numbers(slot);
  } else if (is_symbolic_int(operand)) {
    const Expr e = symbolic_expr(operand);
    if (t.symbols.is_made(e)) return false;  // such arithmetic comes before the graph
    value = Ref::steal(PyLong_FromLongLong(e.context().evaluate_hint(e).value()));
    on_tape = make_size_ref(e, t.symbols);
  } else if (PyFloat_CheckExact(operand) || PyLong_CheckExact(operand)) {
    if (PyFloat_AsDouble(operand) == -1 && PyErr_Occurred() != nullptr) {
      forget_error();  // beyond all floats
      return false;
    }
    value = on_tape = Ref::borrow(operand);
  } else {
    return false;
  }
  return static_cast<bool>(value);
}

/// A comparison of floats that the graph computes, as a condition of the graph: it holds as it falls in this call. Null without an
/// error set: it may not be taken.
Ref NumberTracing::decide_number(const char* name, PyObject* a, PyObject* b) {
  constexpr double kExactInts = 9007199254740992.0;  // 2^53
  Trace& t = *trace_;
  const bool truth = std::strcmp(name, "truth") == 0;
  const int op = truth ? Py_NE : comparison_of(name);
  if (op < 0 || !t.symbols.may_decide() || !values().may_ask()) return {};
  const Ref zero = Ref::steal(PyFloat_FromDouble(0));
  if (truth) b = zero.get();
  Ref values_now[2], operands[2];
  const PyObject* const both[] = {a, b};
  for (size_t i = 0; i < 2; ++i) {
    PyObject* const operand = const_cast<PyObject*>(both[i]);
    if (is_symbolic_float(operand)) {
      if ((op == Py_EQ || op == Py_NE) && own_.rounded.contains(float_slot(operand))) return {};
      values_now[i] = Ref::steal(PyFloat_FromDouble(float_value(operand)));
      operands[i] = Ref::borrow(operand);
    } else if (PyFloat_CheckExact(operand) || PyLong_CheckExact(operand)) {
      const double value = PyFloat_AsDouble(operand);
      forget_error();
      if (PyLong_CheckExact(operand) && !(std::fabs(value) < kExactInts)) return {};
      values_now[i] = Ref::steal(PyFloat_FromDouble(value));
      operands[i] = values_now[i];
    } else {
      return {};
    }
  }
  const Ref holds = Ref::steal(PyObject_RichCompare(values_now[0].get(), values_now[1].get(), op));
  if (!holds || !PyBool_Check(holds.get())) return {};
  // As tensors: what the graph asks for is one bit of a tensor.
  static PyObject* const make = attr(api_.torch.get(), "scalar_tensor").release();
  const Ref options = Ref::steal(PyDict_New());
  PyDict_SetItemString(options.get(), "dtype", attr(api_.torch.get(), "float64").get());
  PyDict_SetItemString(options.get(), "device", api_.cpu_device.get());
  for (Ref& operand : operands) {
    if (!is_symbolic_float(operand.get())) continue;
    const Ref args = Ref::steal(PyTuple_Pack(1, operand.get()));
    operand = Ref::steal(torch().torch_function(make, args.get(), options.get()));
    if (!operand || !tracing()) return {};
  }
  const bool turned = !api_.is_tensor(operands[0].get());
  const Ref compare = attr(api_.torch.get(), comparison_name(turned ? mirrored(op) : op));
  if (turned) std::swap(operands[0], operands[1]);
  const Ref args = Ref::steal(PyTuple_Pack(2, operands[0].get(), operands[1].get()));
  const Ref flag = Ref::steal(torch().torch_function(compare.get(), args.get(), nullptr));
  if (!flag || !tracing()) return {};
  const Bypass bypass(bypass_);
  return values().flag(flag.get(), holds.get());
}

/// Whether arithmetic on floats that the graph reads does in each call what it does in this one: Python's errors and complex
/// results are no values of a graph.
bool NumberTracing::stays_a_float(const char* name, PyObject* a, PyObject* b, bool of_python) {
  const auto is_read = [this](PyObject* o) { return is_symbolic_float(o) && own_.read.contains(float_slot(o)); };
  if (!is_read(a) && !is_read(b)) return true;
  if (of_python || std::strcmp(name, "pow") == 0) return false;
  if (std::strcmp(name, "truediv") != 0 || !is_read(b) || own_.positive.contains(float_slot(b))) return true;
  const Ref zero = Ref::steal(PyFloat_FromDouble(0));
  return decide_number("ne", b, zero.get()).get() == Py_True;
}

Ref NumberTracing::larger_or_smaller(const char* name, PyObject* a, PyObject* b, PyObject* function) {
  const auto is_of_tensor = [this](PyObject* o) { return is_symbolic_float(o) && !from_numbers(float_slot(o)); };
  const auto is_real = [](PyObject* o) { return is_symbolic_float(o) || PyFloat_CheckExact(o); };
  if (!tracing() || !is_real(a) || !is_real(b) || !(is_of_tensor(a) || is_of_tensor(b))) return {};
  Ref made = derive_number(name, a, b, function, true);
  const bool constant = PyFloat_CheckExact(a) && PyFloat_AS_DOUBLE(a) > 0;  // which a NaN does not replace
  if (made && constant && std::strcmp(name, "max") == 0) own_.positive.insert(float_slot(made.get()));
  return made;
}

Ref NumberTracing::derive_number(const char* name, PyObject* a, PyObject* b, PyObject* function, bool extreme) {
  if (!tracing()) return {};
  Trace& t = *trace_;
  if (is_numpy_tape(t.tape)) return {};  // NumPy's
  Ref values[2], operands[2];
  bool of_tensor = false;
  if (!number_operand(a, values[0], operands[0], of_tensor)) return {};
  if (b != nullptr && !number_operand(b, values[1], operands[1], of_tensor)) return {};
  if (of_tensor && function == nullptr && !transforms().open()) {
    if (Ref held = decide_number(name, a, b); held || PyErr_Occurred() != nullptr || !tracing()) return held;
  }
  // What the graph computes itself.
  static const std::unordered_set<std::string> in_graph = {"add", "sub", "mul", "truediv", "pow", "neg"};
  if (of_tensor && function == nullptr && !in_graph.contains(name)) return {};
  if (of_tensor && !stays_a_float(name, a, b, function != nullptr && !extreme)) return {};
  if (function == nullptr) function = operator_function(name);
  if (function == nullptr) return {};
  const Bypass bypass(bypass_);
  const Ref result =
      Ref::steal(b == nullptr ? PyObject_CallOneArg(function, values[0].get())
                              : PyObject_CallFunctionObjArgs(function, values[0].get(), values[1].get(), nullptr));
  const bool check = result && PyBool_Check(result.get());
  const bool whole = result && PyLong_CheckExact(result.get()) && fits_word(result.get());
  if (!result || !(check || whole || PyFloat_CheckExact(result.get())) || (of_tensor && (check || whole))) {
    forget_error();  // an error, or a complex number: by value
    return {};
  }
  TapeNode node;
  node.func = Ref::borrow(function);
  node.name = std::string("number.") + name;
  node.args = b == nullptr ? Ref::steal(PyTuple_Pack(1, operands[0].get()))
                           : Ref::steal(PyTuple_Pack(2, operands[0].get(), operands[1].get()));
  if (!check) return record_number(std::move(node), result.get());
  record_number_node(std::move(node), result.get(), result);
  return result;
}

Ref NumberTracing::small_number(Expr symbol, PyObject* value) {
  const Bypass bypass(bypass_);
  TapeNode node;
  node.func = Ref::borrow(operator_function("pos"));
  node.name = "number.int";
  node.args = Ref::steal(PyTuple_Pack(1, make_size_ref(symbol, trace_->symbols).get()));
  return record_number(std::move(node), value);
}

void NumberTracing::need_decided() {
  // Not at once: code in C that asks for a value may be about to call the mode, which a break takes off.
  if (context_.state == State::kTracing) trace_->pending_break = "a decision by a size, or a number, that data decide";
}

void NumberTracing::need_number(int slot) {
  if (context_.state != State::kTracing) return;
  Trace& t = *trace_;
  if (!from_numbers(slot)) {
    if (!graph_break("the value of a float that the graph computes")) postpone_error();
    return;
  }
  // Not what it comes from: other numbers may give the same.
  if (!own_.needed.insert(slot).second) return;
  const Bypass bypass(bypass_);
  TapeNode node;
  node.func = Ref::borrow(operator_function("pos"));
  node.name = "number.value";
  node.args = Ref::steal(PyTuple_Pack(1, make_slot_ref(slot).get()));
  const Ref value = t.tape.slots()[static_cast<size_t>(slot)].object;
  record_number_node(std::move(node), value.get(), value);
}

bool NumberTracing::keep_within(int slot, const Within& within) {
  const double now = PyFloat_AsDouble(trace_->tape.slots()[static_cast<size_t>(slot)].object.get());
  if (!(now >= within.low && now <= within.high) || now == within.apart) return false;
  // Where a tensor decides nothing can be guarded: such a number must be free to be any.
  const Within any;
  if (!from_numbers(slot)) return !within.apart && within.low == any.low && within.high == any.high;
  const auto keep = [&](const char* function, double other) {
    if (!own_.kept.insert({slot, function, other}).second) return;
    const Bypass bypass(bypass_);
    TapeNode node;
    node.func = Ref::borrow(operator_function(function));
    node.name = std::string("number.") + function;
    node.args = Ref::steal(PyTuple_Pack(2, make_slot_ref(slot).get(), Ref::steal(PyFloat_FromDouble(other)).get()));
    record_number_node(std::move(node), Py_True, Ref::borrow(Py_True));
  };
  keep("ge", within.low);
  keep("le", within.high);
  if (within.apart) keep("ne", *within.apart);
  return true;
}

Ref NumberTracing::number_call(PyObject* callable, const KnownCall& known, PyObject* args) {
  const Py_ssize_t count = PyTuple_GET_SIZE(args);
  if (count == 0 || count > 2) return {};
  PyObject* first = PyTuple_GET_ITEM(args, 0);
  PyObject* second = count == 2 ? PyTuple_GET_ITEM(args, 1) : nullptr;
  if (!is_symbolic_number(first) && !is_symbolic_number(second)) return {};
  auto* const float_type = reinterpret_cast<PyObject*>(&PyFloat_Type);
  auto* const int_type = reinterpret_cast<PyObject*>(&PyLong_Type);
  const bool real = is_symbolic_float(first);
  if (callable == reinterpret_cast<PyObject*>(&PyType_Type)) {
    return count == 1 ? Ref::borrow(real ? float_type : int_type) : Ref();
  }
  if (callable == float_type && count == 1)
    return real ? Ref::borrow(first) : derive_number("float", first, nullptr, callable);
  if (callable == int_type && count == 1)
    return real ? derive_number("int", first, nullptr, callable) : Ref::borrow(first);
  if (!PyCFunction_Check(callable)) return {};
  const std::string module = text_of(attr_or_null(callable, "__module__").get());
  const std::string name = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  if (module == "builtins" && name == "round") {
    return real || second != nullptr ? derive_number("round", first, second, callable) : Ref::borrow(first);
  }
  const bool extreme = name == "max" || name == "min";
  if (module == "builtins" && extreme && second != nullptr)
    return larger_or_smaller(name.c_str(), first, second, callable);
  if (module != "math") return {};
  if (!real && second == nullptr && known.is(kOfWhole)) return Ref::borrow(first);
  return derive_number(name.c_str(), first, second, callable);
}

namespace {

/// A copy of a container of the language's own that nobody changes, where all that decides a search in it is plain data; null for
/// others.
Ref table_of(PyObject* container, const TorchApi& api) {
  constexpr Py_ssize_t kLargest = 4096;
  PyTypeObject* type = Py_TYPE(container);
  if (PyRange_Check(container)) return Ref::borrow(container);
  const auto atoms = [&api](PyObject* items) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items); ++i) {
      if (!is_atom(PyList_GET_ITEM(items, i), api) || api.is_numpy(PyList_GET_ITEM(items, i))) return false;
    }
    return true;
  };
  if (PyDict_Check(container)) {
    static PyObject* const methods[] = {PyUnicode_InternFromString("__getitem__"),
                                        PyUnicode_InternFromString("__contains__"), PyUnicode_InternFromString("get")};
    for (PyObject* method : methods) {
      if (_PyType_Lookup(type, method) != _PyType_Lookup(&PyDict_Type, method)) return {};
    }
    if (PyDict_GET_SIZE(container) > kLargest) return {};
    Ref copy = Ref::steal(PyDict_New());
    if (PyDict_Update(copy.get(), container) != 0) return {};
    const Ref keys = Ref::steal(PyDict_Keys(copy.get()));
    return keys && atoms(keys.get()) ? copy : Ref();
  }
  if (PyAnySet_CheckExact(container) || PyList_CheckExact(container) || PyTuple_CheckExact(container)) {
    if (PyObject_Size(container) > kLargest) return {};
    const Ref items = Ref::steal(PySequence_List(container));
    if (!items || !atoms(items.get())) return {};
    return Ref::steal(PyAnySet_Check(container) ? PyFrozenSet_New(items.get()) : PySequence_Tuple(items.get()));
  }
  return {};
}

/// Whether every value of a table is a float, or every one an int.
bool has_one_kind(PyObject* table) {
  const Ref values = Ref::steal(PyDict_Check(table) ? PyDict_Values(table) : PySequence_List(table));
  if (!values) return false;
  bool real = true, whole = true;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(values.get()); ++i) {
    PyObject* value = PyList_GET_ITEM(values.get(), i);
    real = real && PyFloat_CheckExact(value);
    whole = whole && PyLong_CheckExact(value) && fits_word(value);
  }
  return real || whole;
}

}  // namespace

Ref NumberTracing::ask_table(PyObject* table, const char* method, PyObject* key, bool decides) {
  Ref value, on_tape;
  bool of_tensor = false;
  if (!number_operand(key, value, on_tape, of_tensor) || of_tensor) return {};
  const Bypass bypass(bypass_);
  TapeNode node;
  node.func = attr_or_null(table, method);
  Ref result = node.func ? Ref::steal(PyObject_CallOneArg(node.func.get(), value.get())) : Ref();
  if (!result) {
    forget_error();  // the program's own look-up says what happens
    return {};
  }
  node.name = "number.table";
  node.args = Ref::steal(PyTuple_Pack(1, on_tape.get()));
  if (!decides) return record_number(std::move(node), result.get());
  record_number_node(std::move(node), result.get(), result);
  return result;
}

Ref NumberTracing::number_in(PyObject* container, PyObject* item) {
  constexpr Py_ssize_t kFew = 8;  // which are compared one by one
  const bool sequence = PyList_Check(container) || PyTuple_Check(container);
  if (!is_symbolic_number(item) || (sequence && PySequence_Fast_GET_SIZE(container) <= kFew)) return {};
  const Ref table = table_of(container, api_);
  if (!table) {
    forget_error();
    return {};
  }
  return ask_table(table.get(), "__contains__", item, true);
}

Ref NumberTracing::number_item(PyObject* container, PyObject* key, PyObject* absent) {
  if (!is_symbolic_number(key) || PyRange_Check(container) || PyAnySet_Check(container)) return {};
  const Ref table = table_of(container, api_);
  if (!table) {
    forget_error();
    return {};
  }
  Ref places = table;
  if (!PyDict_Check(table.get())) {
    const Py_ssize_t size = PyTuple_GET_SIZE(table.get());
    if (is_symbolic_float(key)) return {};  // an error
    places = Ref::steal(PyObject_CallFunction(reinterpret_cast<PyObject*>(&PyRange_Type), "nn", -size, size));
  }
  const Ref there = ask_table(places.get(), "__contains__", key, true);
  if (!there) return {};
  if (there.get() == Py_False) {
    static PyObject* const missing = PyUnicode_InternFromString("__missing__");
    PyObject* function = absent == nullptr ? _PyType_Lookup(Py_TYPE(container), missing) : nullptr;
    if (function == nullptr || !PyFunction_Check(function)) return Ref::borrow(absent);
    return Ref::steal(PyObject_CallFunctionObjArgs(function, container, key, nullptr));
  }
  return ask_table(table.get(), "__getitem__", key, !has_one_kind(table.get()));
}

Ref NumberTracing::dict_get(PyObject* callable, PyObject* args) {
  // Bound, or a method and the dict among its arguments.
  PyObject* dict = nullptr;
  const char* name = "";
  Py_ssize_t at = 0;
  if (PyCFunction_Check(callable)) {
    dict = reinterpret_cast<PyCFunctionObject*>(callable)->m_self;
    name = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  } else if (Py_TYPE(callable) == &PyMethodDescr_Type && PyTuple_GET_SIZE(args) > 0) {
    dict = PyTuple_GET_ITEM(args, at++);
    name = reinterpret_cast<PyMethodDescrObject*>(callable)->d_method->ml_name;
  }
  const Py_ssize_t given = PyTuple_GET_SIZE(args) - at;
  if (dict == nullptr || !PyDict_Check(dict) || std::strcmp(name, "get") != 0 || given < 1 || given > 2) return {};
  if (!is_symbolic_number(PyTuple_GET_ITEM(args, at))) return {};
  reads().watch_container(dict);
  return number_item(dict, PyTuple_GET_ITEM(args, at), given == 2 ? PyTuple_GET_ITEM(args, at + 1) : Py_None);
}

Ref NumberTracing::value_of(int slot) {
  Trace& t = *trace_;
  const Tape& tape = t.tape;
  std::unordered_set<int> wanted{slot};
  std::vector<size_t> slice;
  for (size_t n = tape.nodes().size(); n-- > 0;) {
    const TapeNode& node = tape.nodes()[n];
    const bool makes = std::any_of(node.outputs.begin(), node.outputs.end(), [&](int o) { return wanted.contains(o); });
    if (!makes || number_operation(node) != nullptr) continue;
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

PyObject* NumberTracing::item_number(PyObject* func, PyObject* tensor) {
  Trace& t = *trace_;
  if (!api_.is_plain_tensor(tensor) || api_.is_numpy(tensor)) return nullptr;
  const Bypass bypass(bypass_);
  int slot = t.tape.find(tensor);
  // One that the trace has not met yet may be a counter as well.
  if (slot < 0 && PyLong_AsLong(attr_or_null(tensor, "ndim").get()) == 0) slot = slot_for(tensor);
  forget_error();
  if (slot < 0) return nullptr;
  const TapeSlot info = t.tape.slots()[static_cast<size_t>(slot)];
  const Ref name = Ref::steal(PyObject_Str(info.dtype.get())), device = attr_or_null(info.device.get(), "type");
  const std::string dtype = text_of(name.get());
  Ref value;
  // Counters: what a program makes of other results is looked at in most cases.
  const bool real = dtype == "torch.float32" || dtype == "torch.float64";
  const bool whole = text_of(attr_or_null(func, "__name__").get()) == "__float__" && dtype == "torch.int64";
  if ((real || whole) && text_of(device.get()) == "cpu") value = value_of(slot);
  if (value && whole) value = Ref::steal(PyNumber_Float(value.get()));
  // What an optimizer of torch's reads goes back into its arithmetic.
  const bool read = !value && real && text_of(device.get()) == "cpu" &&
                    text_of(attr_or_null(func, "__name__").get()) == "item" && !context_.frames.empty() &&
                    is_optimizer(context_.frames.back()->code());
  if (read) value = values().number_now(func, tensor);
  forget_error();
  if (!value || !PyFloat_CheckExact(value.get())) return nullptr;
  TapeNode node;
  node.func = Ref::borrow(func);
  node.name = kItem;
  node.args = Ref::steal(PyTuple_Pack(1, make_slot_ref(slot).get()));
  Ref number = record_number(std::move(node), value.get());
  if (read) own_.read.insert(float_slot(number.get()));
  return number.release();
}

}  // namespace tatara::capture
