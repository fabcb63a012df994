// Ints that vary as keys of dicts: `hooks[handle.id] = hook`, where a counter gives the id. A dict decides by the hash of a key and by
// comparing keys. Here it may do so by the values of this call: that the key is none of the others is a guard, and what it is
// itself is none. Effects and frames get it as they get any int that sizes make.
#include <algorithm>
#include <optional>

#include "capture/host/known_calls.h"
#include "capture/host/object_kinds.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/read_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/write_tracing.h"

namespace tatara::capture {
namespace {

constexpr Py_ssize_t kMostKeys = 64;  // each is a guard

/// Of OrderedDicts all operations that do not go by hashes kept in the dict are known (hooks are in such).
bool is_table(PyObject* dict) { return Py_IS_TYPE(dict, &PyODict_Type) != 0; }

/// Calls that look for no key in a dict that is an argument or their object.
bool looks_for_no_key(std::string_view name) { return (name_traits(name) & (kGivesView | kSizeOnly | kAsksType)) != 0; }

/// Calls fn(key) until it gives false.
template <typename Fn>
bool all_keys(PyObject* dict, Fn&& fn) {
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(dict, &at, &key, &value) != 0) {
    if (!fn(key)) return false;
  }
  return true;
}

}  // namespace

bool NumberTracing::is_free_key(PyObject* dict, PyObject* key) const {
  if (!is_table(dict) || PyDict_GET_SIZE(dict) > kMostKeys || trace_->symbols.empty()) return false;
  if (!is_symbolic_int(key) && !PyLong_CheckExact(key)) return false;
  if (owner_.keys_by_value.contains(reinterpret_cast<PyObject*>(context_.root->code()))) return false;
  const Expr e = symbolic_expr(key);
  if (e.valid() && trace_->symbols.is_made(e)) return false;
  const Ref now = int_now(key);
  bool any = e.valid();
  const bool ints = all_keys(dict, [&](PyObject* each) {
    if (!is_symbolic_int(each) && !PyLong_CheckExact(each)) return false;
    const Expr other = symbolic_expr(each);
    any = any || other.valid();
    if (!e.valid() && !other.valid()) return true;
    if (e.valid() && other.valid() && e.node() == other.node()) return true;
    return PyObject_RichCompareBool(now.get(), int_now(each).get(), Py_EQ) == 0;
  });
  return any && ints;
}

std::optional<bool> NumberTracing::has_free_key(PyObject* dict, PyObject* key) {
  if (!is_free_key(dict, key)) return std::nullopt;
  reads().watch_container(dict);
  TraceSymbols& symbols = trace_->symbols;
  const auto expression = [&](PyObject* each) {
    return is_symbolic_int(each) ? symbolic_expr(each) : symbols.ctx().constant(PyLong_AsLongLong(each));
  };
  const Expr e = expression(key);
  bool found = false;
  all_keys(dict, [&](PyObject* each) {
    const Expr other = expression(each);
    if (other.node() == e.node()) {
      found = true;
    } else if (is_symbolic_int(key) || is_symbolic_int(each)) {
      symbols.decide(symbols.ctx().ne(e, other));
    }
    return true;
  });
  forget_error();
  return found;
}

void NumberTracing::note_free_key(PyObject* dict, PyObject* key) {
  if (is_symbolic_int(key)) own_.free_keys.emplace_back(Ref::borrow(dict), Ref::borrow(key));
}

PyObject* NumberTracing::free_item(PyObject* dict, PyObject* key) {
  if (!has_free_key(dict, key)) return not_handled();
  const TraceSymbols::KeyLookup lookup(trace_->symbols);
  PyObject* const value = PyDict_GetItemWithError(dict, key);
  if (value == nullptr && PyErr_Occurred() == nullptr) PyErr_SetObject(PyExc_KeyError, key);
  return Py_XNewRef(value);
}

bool NumberTracing::holds_free_keys() const {
  const TraceSymbols::KeyLookup lookup(trace_->symbols);
  const bool any = std::any_of(own_.free_keys.begin(), own_.free_keys.end(), [](const auto& each) {
    return PyDict_Contains(each.first.get(), each.second.get()) == 1;
  });
  forget_error();
  return any;
}

bool NumberTracing::has_free_keys(PyObject* object, int depth) const {
  if (own_.free_keys.empty() || object == nullptr || depth < 0) return false;
  if (PyObject* const mapping = viewed_mapping(object)) object = mapping;
  if (PyList_Check(object) || PyTuple_Check(object)) {
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      if (has_free_keys(PySequence_Fast_GET_ITEM(object, i), depth - 1)) return true;
    }
  }
  return std::any_of(own_.free_keys.begin(), own_.free_keys.end(), [object](const auto& each) {
    return each.first.get() == object && is_symbolic_int(each.second.get());
  });
}

void NumberTracing::settle_free_keys(PyObject* object) {
  if (!has_free_keys(object)) return;
  for (const auto& [dict, key] : own_.free_keys) settle_in(key.get());
}

void NumberTracing::settle_free_keys(PyObject* callable, std::string_view name, std::span<PyObject* const> args) {
  if (own_.free_keys.empty() || looks_for_no_key(name)) return;
  if (PyType_Check(callable) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(callable), &_PyWeakref_RefType) != 0)
    return;
  settle_free_keys(bound_to(callable));
  for (PyObject* each : args) settle_free_keys(each);
}

bool NumberTracing::extend_by_table(PyObject* list, PyObject* view) {
  if (viewed_mapping(view) == nullptr || !has_free_keys(view)) return false;
  const TraceSymbols::KeyLookup lookup(trace_->symbols);
  return PyList_SetSlice(list, PyList_GET_SIZE(list), PyList_GET_SIZE(list), Ref::steal(PySequence_List(view)).get()) ==
         0;
}

/// Under a key that varies: effects have the key of each call.
PyObject* WriteTracing::write_free_key(PyTypeObject* type, PyObject* target, const std::string& name,
                                       std::span<PyObject* const> operands, const Perform& perform) {
  PyObject* const key = operands[0];
  const Ref now = int_now(key);
  trace_->object_guards.before_write(target);
  PyObject* done = nullptr;
  {
    const TraceSymbols::KeyLookup lookup(trace_->symbols);
    done = perform();
  }
  if (done == nullptr) return nullptr;
  if (operands.size() == 2) {
    note_call(type, target, name.c_str(), {key, operands[1]});
    numbers().note_free_key(target, key);
  } else {
    note_call(type, target, name.c_str(), {key});
  }
  trace_->object_guards.written(target, now.get());
  return done;
}

/// A Counter's update by a list of names: each count is read and written by itself, so that it may vary.
PyObject* WriteTracing::count_elements(PyObject* target, PyObject* names, const Perform& perform) {
  if (!PyList_CheckExact(names) && !PyTuple_CheckExact(names)) return rewrite(target, perform);
  const Ref all = Ref::steal(PySequence_Tuple(names));
  if (!all) return nullptr;
  const Py_ssize_t size = PyTuple_GET_SIZE(all.get());
  for (Py_ssize_t i = 0; i < size; ++i) {
    if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(all.get(), i))) return rewrite(target, perform);
  }
  const Ref one = Ref::steal(PyLong_FromLong(1)), none = Ref::steal(PyLong_FromLong(0));
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* const key = PyTuple_GET_ITEM(all.get(), i);
    Ref count = Ref::borrow(PyDict_GetItemWithError(target, key));
    if (!count && PyErr_Occurred() != nullptr) return nullptr;
    if (tracing() && !origins().contents_watched(target)) {
      Ref number = count ? Ref::steal(numbers().watched({target, key}, count.get())) : Ref();
      if (number) {
        count = std::move(number);
      } else {
        numbers().watch_key(target, key);
      }
    }
    const Ref more = Ref::steal(PyNumber_Add(count ? count.get() : none.get(), one.get()));
    if (!more) return nullptr;
    const int status = tracing() ? write_item(target, key, more.get()) : kNotHandled;
    if (status == -1 || (status == kNotHandled && PyObject_SetItem(target, key, more.get()) < 0)) return nullptr;
  }
  return Py_NewRef(Py_None);
}

}  // namespace tatara::capture
