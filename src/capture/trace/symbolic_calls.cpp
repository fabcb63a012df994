// Symbolic integers in the operations that the tracer sees: which of them keep the symbol, and which take its value.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "capture/host/known_calls.h"
#include "capture/host/object_kinds.h"
#include "capture/tape/node_operators.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/numpy_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

/// Puts `now` where `before` is the item of a list or dict, or in a slot.
bool put_item(PyObject* holder, PyObject* key, PyObject* before, PyObject* now) {
  if (PyDict_Check(holder)) {
    const bool there = PyDict_GetItemWithError(holder, key) == before && PyDict_SetItem(holder, key, now) == 0;
    forget_error();
    return there;
  }
  if (!PyList_Check(holder)) {
    for (const InstanceSlot& slot : instance_slots(holder)) {
      if (PyUnicode_CompareWithASCIIString(key, slot.name) != 0 || slot.of(holder) != before) continue;
      Ref::steal(std::exchange(slot.of(holder), Py_NewRef(now)));
      return true;
    }
    return false;
  }
  const Py_ssize_t index = PyLong_AsSsize_t(key);
  if (index >= PyList_GET_SIZE(holder) || PyList_GET_ITEM(holder, index) != before) return false;
  return PyList_SetItem(holder, index, Py_NewRef(now)) == 0;
}

/// torch.Size's own constructor asks for plain ints.
PyObject* make_size(PyObject* size_type, PyObject* items) {
  const Ref args = Ref::steal(PyTuple_Pack(1, items));
  return args ? PyTuple_Type.tp_new(reinterpret_cast<PyTypeObject*>(size_type), args.get(), nullptr) : nullptr;
}

/// A list or tuple of ints, some of which may be placeholders.
bool holds_ints(PyObject* items) {
  if (!PyList_CheckExact(items) && !PyTuple_Check(items)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items, i);
    if (!PyLong_CheckExact(item) && !is_symbolic_int(item) && !is_derived_int(item)) return false;
  }
  return true;
}

/// The callable as a torch function mode gets it, and its arguments with the bound object. False without a Python error set: it
/// is a method that the class of its object does not have (what an operator of the dispatcher calls).
bool as_mode_call(PyObject* callable, PyObject* args, Ref& func, Ref& all_args) {
  func = Ref::borrow(callable);
  all_args = Ref::borrow(args);
  PyObject* self = nullptr;
  Ref held;
  std::string name;
  if (PyCFunction_Check(callable)) {
    self = bound_to(callable);
    if (self == nullptr) return true;
    name = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  } else if (std::strcmp(Py_TYPE(callable)->tp_name, "method-wrapper") == 0) {
    held = attr_or_null(callable, "__self__");
    self = held.get();
    name = name_of(callable);
  } else {
    return true;
  }
  if (self == nullptr) return false;
  func = attr_or_null(reinterpret_cast<PyObject*>(Py_TYPE(self)), name.c_str());
  if (!func) return false;
  const Ref first = Ref::steal(PyTuple_Pack(1, self));
  all_args = Ref::steal(PySequence_Concat(first.get(), args));
  return static_cast<bool>(all_args);
}

}  // namespace

Ref NumberTracing::number_on_tape(int object, Expr symbol) {
  Trace& t = *trace_;
  PyObject* value = t.objects[static_cast<size_t>(object)];
  if (PyLong_CheckExact(value)) {
    // Also where a tensor has it as a size: that tensor need not be on the tape.
    t.tape.add_number(value, object, symbol);
    return t.symbols.make(symbol);
  }
  const std::vector<Expr>& all = t.symbols.symbols();
  const auto high = std::find(all.begin(), all.end(), symbol);
  const std::pair<Expr, Expr> bits{*high, *(high + 1)};
  return t.symbols.make_float(value, bits, object, t.tape.add_float(value, object, bits));
}

namespace {

using ChangedTuples = std::unordered_map<PyObject*, Ref>;

/// In a copy of the tuple: the item at `key`.
bool change_item(ChangedTuples& changed, PyObject* tuple, PyObject* key, PyObject* item) {
  Ref& copy = changed[tuple];
  if (!copy) {
    const Ref items = Ref::steal(PySequence_List(tuple));
    const Ref args = items ? Ref::steal(PyTuple_Pack(1, items.get())) : Ref();
    if (args) copy = Ref::steal(PyTuple_Type.tp_new(Py_TYPE(tuple), args.get(), nullptr));
    if (!copy) return false;
  }
  const Py_ssize_t at = PyLong_AsSsize_t(key);
  PyObject* const before = PyTuple_GET_ITEM(copy.get(), at);
  PyTuple_SET_ITEM(copy.get(), at, Py_NewRef(item));
  Py_DECREF(before);
  return true;
}

/// Tuples that the program also finds where no other one can stand, and those in them.
std::unordered_set<PyObject*> fixed_tuples(const std::vector<ValueGuard::SymbolicTuple>& tuples) {
  std::unordered_set<PyObject*> fixed;
  for (size_t i = tuples.size(); i-- > 0;) {
    const ValueGuard::SymbolicTuple& each = tuples[i];
    if ((each.root == SIZE_MAX && !each.holder) || fixed.contains(each.holder.get())) fixed.insert(each.tuple.get());
  }
  return fixed;
}

}  // namespace

std::vector<std::pair<size_t, Ref>> NumberTracing::place_items(ValueGuard& guard) {
  Trace& t = *trace_;
  const std::vector<ValueGuard::SymbolicTuple> tuples = guard.take_symbolic_tuples();
  const std::unordered_set<PyObject*> fixed = fixed_tuples(tuples);
  ChangedTuples changed;
  for (ValueGuard::SymbolicItem& item : guard.take_symbolic_items()) {
    Ref value = Ref::borrow(t.objects[static_cast<size_t>(item.object)]);
    Ref number = number_on_tape(item.object, item.symbol);
    PyObject *const holder = item.holder.get(), *const key = item.key.get();
    if (PyTuple_Check(holder)) {
      if (fixed.contains(holder) || !change_item(changed, holder, key, number.get())) plain_number(number.get());
    } else if (put_item(holder, key, value.get(), number.get())) {
      own_.placed.push_back({std::move(item.holder), std::move(item.key), std::move(number), std::move(value)});
    } else {
      plain_number(number.get());  // it is read as it is
    }
  }
  std::vector<std::pair<size_t, Ref>> roots;
  for (const ValueGuard::SymbolicTuple& each : tuples) {
    const auto found = changed.find(each.tuple.get());
    if (found == changed.end()) continue;
    const Ref now = found->second;
    mark_born(now.get());
    t.alive.push_back(now);
    PyObject* const holder = each.holder.get();
    if (each.root != SIZE_MAX) {
      roots.emplace_back(each.root, now);
    } else if (PyTuple_Check(holder)) {
      if (!change_item(changed, holder, each.key.get(), now.get())) settle_reachable(now.get());
    } else if (put_item(holder, each.key.get(), each.tuple.get(), now.get())) {
      own_.placed.push_back({each.holder, each.key, now, each.tuple});
    } else {
      settle_reachable(now.get());
    }
  }
  forget_error();
  return roots;
}

void NumberTracing::place_symbols(Frame& f, const std::vector<int>& places, const std::vector<PyObject*>& arguments) {
  Trace& t = *trace_;
  std::vector<std::pair<size_t, Ref>> roots = place_items(t.guard);
  for (const auto& [root, symbol, object] : t.guard.symbolic_roots()) {
    roots.emplace_back(root, number_on_tape(object, symbol));
  }
  if (roots.empty()) return;
  std::vector<Ref> stack;
  for (int i = 0; i < f.stack_depth(); ++i) stack.push_back(Ref::borrow(f.stack()[i]));
  bool stack_changed = false;
  for (const auto& [root, number] : roots) {
    const int place = places[root];
    if (place >= kStarredArgument) {
      place_starred(f, arguments, static_cast<size_t>(place - kStarredArgument), number.get());
    } else if (place < f.local_count()) {
      f.set_local(place, number.get());
    } else {
      stack[static_cast<size_t>(place - f.local_count())] = number;
      stack_changed = true;
    }
  }
  if (!stack_changed) return;
  std::vector<PyObject*> values;
  for (const Ref& value : stack) values.push_back(value.get());
  f.replace_stack(values.data(), static_cast<int>(values.size()));
}

void NumberTracing::take_back_symbols() {
  for (const Placed& place : own_.placed) {
    put_item(place.holder.get(), place.key.get(), place.number.get(), place.value.get());
  }
  own_.placed.clear();
}

namespace {
constexpr const char* kFused = "_fused_";  // whole optimizers
}  // namespace

bool NumberTracing::keeps_number(const std::string& function, PyObject* args, PyObject* kwargs) {
  if (function.rfind(kFused, 0) == 0) return true;  // the host's own, which gets a number with each call
  if (function != "as_tensor") return false;
  const Py_ssize_t keywords = kwargs != nullptr ? PyDict_GET_SIZE(kwargs) : 0;
  PyObject* device = keywords == 1 ? PyDict_GetItemString(kwargs, "device") : nullptr;
  return PyTuple_GET_SIZE(args) == 1 &&
         (keywords == 0 || (device != nullptr && text_of(Ref::steal(PyObject_Str(device)).get()) == "cpu"));
}

PyObject* NumberTracing::watched(ReadPlace place, PyObject* value) {
  if (value == nullptr || own_.varying.empty()) return nullptr;
  if (place.item < 0 && PyTuple_CheckExact(value)) {
    if (PyObject* made = watched_tuple(place, value)) return made;
  }
  if (!own_.varying.contains(place) || !trace_->object_guards.is_original(place)) return nullptr;
  return PyLong_Check(value) || PyFloat_Check(value) ? watched_number(place, value) : watched_value(place, value, true);
}

void NumberTracing::watch_key(PyObject* dict, PyObject* key) {
  const ReadPlace place{dict, key};
  PyObject* const value = own_.varying.empty() || !PyUnicode_CheckExact(key) ? nullptr : PyDict_GetItem(dict, key);
  // C code would find the number itself.
  const bool other = value != nullptr && !PyLong_Check(value) && !PyFloat_Check(value) && own_.varying.contains(place);
  if (other && trace_->object_guards.is_original(place) && Ref::steal(watched_value(place, value, false))) return;
  trace_->object_guards.dict_key(dict, key);
}

bool NumberTracing::watch_item(ReadPlace place, PyObject* item) {
  if (!own_.varying.contains(place) || PyLong_Check(item) || PyFloat_Check(item)) return false;
  return static_cast<bool>(Ref::steal(watched_value(place, item, false)));
}

PyObject* NumberTracing::watched_number(ReadPlace place, PyObject* value) {
  Trace& t = *trace_;
  if (const auto found = own_.numbers.find(place); found != own_.numbers.end()) return Py_NewRef(found->second.get());
  const int object = static_cast<int>(t.objects.size());
  const size_t number = t.symbols.symbols().size();
  Expr symbol;
  IntRange range;
  const bool small = !PyFloat_CheckExact(value) && !number_range(value, range) && any_number_range(value, range);
  if (PyFloat_CheckExact(value)) {
    symbol = t.symbols.add_float(value, object).first;
  } else if (small || number_range(value, range)) {
    symbol = t.symbols.add(PyLong_AsLongLong(value), {object, SymbolSource::kInt, false}, range);
  } else {
    return nullptr;
  }
  t.objects.push_back(value);
  t.alive.push_back(Ref::borrow(value));
  t.object_guards.number(place, value, number, range);
  Ref made = number_on_tape(object, symbol);
  // 0 and 1 are no sizes that vary: such an int has no expression.
  if (small) made = small_number(symbol, value);
  own_.numbers.emplace(place, made);
  return Py_XNewRef(made.get());
}

PyObject* NumberTracing::watched_value(ReadPlace place, PyObject* value, bool replaceable) {
  Trace& t = *trace_;
  if (const auto found = own_.numbers.find(place); found != own_.numbers.end()) return Py_NewRef(found->second.get());
  if (own_.values.contains(place)) return Py_NewRef(value);
  if (t.index_of(value) < 0 && (t.tape.find(value) >= 0 || t.object_guards.seen_objects().contains(value)))
    return nullptr;              // known as the object that it is
  const Bypass bypass(bypass_);  // what is read of tensors is no part of the program
  DynamicDims dims;
  dims.mode = DynamicMode::kNever;
  ValueGuard plain, guard;
  std::vector<PyObject*> objects = t.objects;
  plain.build_behind(value, api_, dims, t.symbols, objects);
  if (!plain.unsupported_tensor.empty()) return nullptr;
  static_cast<VaryingItems&>(dims) = own_.varying.at(place);
  dims.mode = owner_.dynamic;
  dims.places = {replaceable ? 0 : -1};  // numbers in it may be symbols
  objects = t.objects;
  guard.build_behind(value, api_, dims, t.symbols, objects);
  origins().found_in_place(t, std::move(objects), guard);
  const std::vector<std::pair<size_t, Ref>> changed = place_items(guard);
  t.object_guards.value(place, std::move(guard));
  own_.values.insert(place);
  if (!changed.empty()) {
    t.alive.push_back(Ref::borrow(value));
    return Py_NewRef(own_.numbers.emplace(place, changed.front().second).first->second.get());
  }
  return Py_NewRef(value);
}

PyObject* NumberTracing::watched_tuple(ReadPlace place, PyObject* tuple) {
  Trace& t = *trace_;
  const auto size = static_cast<size_t>(PyTuple_GET_SIZE(tuple));
  if (const auto found = own_.numbers.find(place); found != own_.numbers.end()) return Py_NewRef(found->second.get());
  if (!t.object_guards.is_original(place)) return nullptr;
  std::vector<bool> varying(size);
  bool any = false, plain = true;
  for (size_t i = 0; i < size; ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i));
    varying[i] = own_.varying.contains({place.holder, place.key, place.index, static_cast<Py_ssize_t>(i)}) &&
                 (PyFloat_CheckExact(item) || PyLong_CheckExact(item));
    any = any || varying[i];
    plain = plain && is_atom(item, api_) && !api_.is_numpy(item);
  }
  if (!any || !plain) return nullptr;
  const Ref made = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(size)));
  if (!made) return nullptr;
  for (size_t i = 0; i < size; ++i) {
    const auto at = static_cast<Py_ssize_t>(i);
    PyObject* item = PyTuple_GET_ITEM(tuple, at);
    PyObject* number = varying[i] ? watched({place.holder, place.key, place.index, at}, item) : nullptr;
    varying[i] = number != nullptr;
    PyTuple_SET_ITEM(made.get(), at, number != nullptr ? number : Py_NewRef(item));
  }
  t.object_guards.number_tuple(place, tuple, varying);
  t.alive.push_back(Ref::borrow(tuple));
  mark_born(made.get());
  own_.numbers.emplace(place, made);
  return Py_NewRef(made.get());
}

bool NumberTracing::symbolic_arguments(PyObject* callable, PyObject* const* args, Py_ssize_t count) {
  if (trace_->symbols.empty()) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (holds_symbolic_number(args[i])) return true;
  }
  return count == 1 && PyCFunction_Check(callable) && api_.is_tensor(args[0]) &&
         std::strcmp(reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name, "len") == 0;
}

PyObject* NumberTracing::symbolic_size(const std::vector<Expr>& sizes) {
  const Ref items = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(sizes.size())));
  for (size_t i = 0; i < sizes.size(); ++i) {
    Ref item = trace_->symbols.make(sizes[i]);
    if (!item) return nullptr;
    PyTuple_SET_ITEM(items.get(), static_cast<Py_ssize_t>(i), item.release());
  }
  const Ref type = attr(api_.torch.get(), "Size");
  PyObject* size = make_size(type.get(), items.get());
  if (size != nullptr) mark_born(size);
  return size;
}

bool NumberTracing::specialize_slot(int slot) {
  const TapeSlot& info = trace_->tape.slots()[static_cast<size_t>(slot)];
  const SlotLayout& layout = trace_->tape.layout(slot);
  for (const Expr e : layout.symbolic_sizes) trace_->symbols.specialize(e);
  for (const Expr e : layout.symbolic_strides) trace_->symbols.specialize(e);
  for (const Expr e : info.bits) trace_->symbols.specialize(e);
  return !layout.symbolic_sizes.empty();
}

bool NumberTracing::specialize_operands(PyObject* args, PyObject* kwargs) {
  if (trace_->symbols.empty()) return false;
  bool any = false;
  const auto each = [&](PyObject* o) -> Ref {
    if (const int slot = slot_of(o); slot >= 0) {
      any = specialize_slot(slot) || any;
    } else if (is_size_ref(o)) {
      trace_->symbols.specialize(size_ref_expr(o));
      any = true;
    }
    return Ref::borrow(o);
  };
  map_structure(args, each);
  if (kwargs != nullptr) map_structure(kwargs, each);
  return any;
}

PyObject* NumberTracing::symbolic_metadata(const TorchFunction& fn, int slot, PyObject* args, PyObject* kwargs) {
  Trace& t = *trace_;
  const Py_ssize_t given = PyTuple_GET_SIZE(args) + (kwargs != nullptr ? PyDict_GET_SIZE(kwargs) : 0);
  const SlotLayout layout = slot < 0 ? SlotLayout() : t.tape.layout(slot);
  if (layout.symbolic_sizes.empty()) {
    specialize_operands(args, kwargs);
    return not_handled();
  }
  const std::vector<Expr>&sizes = layout.symbolic_sizes, &strides = layout.symbolic_strides;
  ExprContext& ctx = t.symbols.ctx();
  const std::string& name = fn.name;
  if (name == "shape" || (name == "size" && given == 1)) return symbolic_size(sizes);
  if (name == "stride" && given == 1) {
    const Ref as_size = Ref::steal(symbolic_size(strides));
    const Ref list = as_size ? Ref::steal(PySequence_List(as_size.get())) : Ref();
    return list ? PyList_AsTuple(list.get()) : nullptr;
  }
  if ((name == "size" || name == "stride") && given == 2) {
    PyObject* dim = PyTuple_GET_SIZE(args) == 2 ? PyTuple_GET_ITEM(args, 1)
                                                : (kwargs != nullptr ? PyDict_GetItemString(kwargs, "dim") : nullptr);
    const auto rank = static_cast<long long>(sizes.size());
    if (dim != nullptr && PyLong_Check(dim)) {
      const long long d = PyLong_AsLongLong(dim);
      if (d >= -rank && d < rank) {
        const auto at = static_cast<size_t>(d < 0 ? d + rank : d);
        return t.symbols.make(name == "size" ? sizes[at] : strides[at]).release();
      }
    }
  }
  try {
    if ((name == "numel" || name == "nelement") && given == 1) {
      Expr product = ctx.constant(1);
      for (const Expr size : sizes) product = ctx.mul(product, size);
      return t.symbols.make(product).release();
    }
    if (name == "is_contiguous" && given == 1) {
      const std::vector<Expr> expected = contiguous_strides(ctx, sizes);
      bool contiguous = true;
      for (size_t d = 0; d < sizes.size() && contiguous; ++d) {
        contiguous = sizes[d].is_const(1) || expected[d] == strides[d] || ctx.guard(ctx.eq(expected[d], strides[d]));
      }
      return PyBool_FromLong(contiguous ? 1 : 0);
    }
  } catch (const Error&) {
    // Beyond 64 bits: by value.
  }
  specialize_operands(args, kwargs);
  return not_handled();
}

PyObject* NumberTracing::symbolic_length(PyObject* tensor) {
  Trace& t = *trace_;
  ++bypass_;
  const int slot = slot_for(tensor);
  --bypass_;
  if (slot < 0) return not_handled();
  const std::vector<Expr>& sizes = t.tape.layout(slot).symbolic_sizes;
  return sizes.empty() ? not_handled() : t.symbols.make(sizes[0]).release();
}

PyObject* NumberTracing::symbolic_operator(PyObject* tensor, const char* method, PyObject* other) {
  const Ref func = attr_or_null(reinterpret_cast<PyObject*>(Py_TYPE(tensor)), method);
  if (!func) return not_handled();
  const Ref args = Ref::steal(PyTuple_Pack(2, tensor, other));
  return PyFunction_Check(func.get()) ? PyObject_Call(func.get(), args.get(), nullptr)
                                      : torch().torch_function(func.get(), args.get(), nullptr);
}

namespace {

/// In the order of BINARY_OP; behind them come the in-place ones.
constexpr const char* kBinaryNames[] = {"add", "and", "floordiv", "lshift", "matmul",  "mul", "mod",
                                        "or",  "pow", "rshift",   "sub",    "truediv", "xor"};
constexpr int kOperatorCount = std::size(kBinaryNames);
/// In the order of Py_LT...
constexpr const char* kCompareNames[] = {"__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"};

/// A function of the module `operator`.
bool is_operator_function(PyObject* callable) {
  if (!PyCFunction_Check(callable)) return false;
  PyObject* const module = reinterpret_cast<PyCFunctionObject*>(callable)->m_module;
  return module != nullptr && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "_operator") == 0;
}

}  // namespace

PyObject* NumberTracing::symbolic_binary(int op, PyObject* left, PyObject* right) {
  constexpr int kInplace = kOperatorCount;  // NB_INPLACE_ADD
  const auto method = [&](const char* prefix) {
    return "__" + (prefix + std::string(kBinaryNames[op % kInplace])) + "__";
  };
  if (is_symbolic_number(right) && api_.is_tensor(left)) {
    if (op >= kInplace) return symbolic_operator(left, method("i").c_str(), right);
    return symbolic_operator(left, method("").c_str(), right);
  }
  if (is_symbolic_number(left) && api_.is_tensor(right)) return symbolic_operator(right, method("r").c_str(), left);
  if (op % kInplace != 0 || !PyTuple_Check(left) || !PyTuple_Check(right)) return not_handled();
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(left));
  PyObject* other = reinterpret_cast<PyObject*>(Py_TYPE(right));
  const auto is_size = [](PyObject* each) { return is_torch_size(reinterpret_cast<PyTypeObject*>(each)); };
  if ((!is_size(type) && !is_size(other)) || (!holds_symbolic_number(left) && !holds_symbolic_number(right))) {
    return not_handled();
  }
  // What the host makes of two sizes without items says which type the sum has.
  const Ref no_left = Ref::steal(PySequence_GetSlice(left, 0, 0)),
            no_right = Ref::steal(PySequence_GetSlice(right, 0, 0));
  const Ref empty = no_left && no_right ? Ref::steal(PyNumber_Add(no_left.get(), no_right.get())) : Ref();
  const Ref head = Ref::steal(PySequence_List(left)), tail = Ref::steal(PySequence_List(right));
  const Ref all = Ref::steal(PySequence_Concat(head.get(), tail.get()));
  if (!empty || !all) return nullptr;
  PyObject* sum = make_size(reinterpret_cast<PyObject*>(Py_TYPE(empty.get())), all.get());
  origins().note_result(sum);
  return sum;
}

PyObject* NumberTracing::symbolic_slice(PyObject* size, PyObject* key) {
  if (!is_torch_size(Py_TYPE(size)) || !holds_symbolic_number(size)) return not_handled();
  const Ref items = Ref::steal(PySequence_List(size));
  const Ref part = items ? Ref::steal(PyObject_GetItem(items.get(), key)) : Ref();
  PyObject* result = part ? make_size(reinterpret_cast<PyObject*>(Py_TYPE(size)), part.get()) : nullptr;
  origins().note_result(result);
  return result;
}

PyObject* NumberTracing::symbolic_compare(int op, PyObject* left, PyObject* right) {
  static const char* const kMirrored[] = {"__gt__", "__ge__", "__eq__", "__ne__", "__lt__", "__le__"};
  if (is_symbolic_number(right) && api_.is_tensor(left)) return symbolic_operator(left, kCompareNames[op], right);
  if (is_symbolic_number(left) && api_.is_tensor(right)) return symbolic_operator(right, kMirrored[op], left);
  return not_handled();
}

PyObject* NumberTracing::symbolic_function(const char* name, PyObject* left, PyObject* right) {
  const std::string_view wanted(name);
  for (int op = 0; op < kOperatorCount; ++op) {
    std::string own = kBinaryNames[op];
    if (wanted == "i" + own) return symbolic_binary(op + kOperatorCount, left, right);
    if (own == "and" || own == "or") own += "_";
    if (wanted == own) return symbolic_binary(op, left, right);
  }
  for (size_t op = 0; op < std::size(kCompareNames); ++op) {
    if (wanted == std::string_view(kCompareNames[op]).substr(2, 2)) {
      return symbolic_compare(static_cast<int>(op), left, right);
    }
  }
  return not_handled();
}

PyObject* NumberTracing::symbolic_call(PyObject* callable, const KnownCall& known, PyObject* args, PyObject* kwargs) {
  using Kind = CallPlan::Kind;
  const Py_ssize_t count = PyTuple_GET_SIZE(args);
  PyObject* first = count > 0 ? PyTuple_GET_ITEM(args, 0) : nullptr;
  const bool no_keywords = kwargs == nullptr || PyDict_GET_SIZE(kwargs) == 0;
  if (PyCFunction_Check(callable) && count == 1 && api_.is_tensor(first) && no_keywords &&
      std::strcmp(reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name, "len") == 0) {
    return symbolic_length(first);
  }
  if (no_keywords && count == 2 && is_operator_function(callable)) {
    const char* name = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
    if (PyObject* made = symbolic_function(name, first, PyTuple_GET_ITEM(args, 1)); made != not_handled()) return made;
  }
  if (no_keywords) {
    Ref made = number_call(callable, known, args);
    if (made || PyErr_Occurred() != nullptr) return made.release();
    made = dict_get(callable, args);
    if (made || PyErr_Occurred() != nullptr) return made.release();
  }
  if (PyType_Check(callable) && is_torch_size(reinterpret_cast<PyTypeObject*>(callable)) && count == 1 &&
      holds_ints(first)) {
    PyObject* size = make_size(callable, first);
    origins().note_result(size);
    return size;
  }
  // Its own code in Python would hand the numbers to a function in C++ that takes real ones only.
  if (is_dispatcher_operator(callable)) return torch().torch_function(callable, args, kwargs);
  const Ref items = Ref::steal(PySequence_List(args));
  const CallPlan plan =
      calls().plan_call(callable, known, reinterpret_cast<PyListObject*>(items.get())->ob_item, count);
  if (plan.kind == Kind::kTorch) {
    Ref func, all_args;
    if (as_mode_call(callable, args, func, all_args)) return torch().torch_function(func.get(), all_args.get(), kwargs);
    if (PyErr_Occurred() != nullptr) return nullptr;
  }
  if (plan.kind == Kind::kTorch || plan.kind == Kind::kBreak || numpy().numpy_value(callable)) {
    settle_in(args);
    settle_in(kwargs);
  }
  return not_handled();
}

}  // namespace tatara::capture
