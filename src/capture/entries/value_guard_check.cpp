// Checking a guard on values, and telling which numbers and sizes differ.
#include <algorithm>

#include "capture/entries/number_ranges.h"
#include "capture/entries/value_guard.h"
#include "capture/host/iterator_state.h"
#include "support/str_cat.h"

namespace tatara::capture {
struct ValueGuard::Checker {
  const ValueGuard& guard;
  TorchApi& api;
  std::vector<PyObject*>& objects;
  std::vector<int64_t>& symbols;
  std::string* why;
  size_t at = 0;

  [[gnu::cold]] bool fail(std::string text) const {
    if (why != nullptr) *why = std::move(text);
    return false;
  }

  bool check(PyObject* o) {
    const Item& item = guard.items_[at++];
    if (item.kind == Kind::kNull) return o == nullptr || fail("a value is bound that was not");
    if (o == nullptr) return fail("a value is unbound");
    if (item.kind == Kind::kConst) {
      return same_value(o, item.value.get()) ||
             fail(why == nullptr ? "" : "value " + short_repr(item.value.get()) + " became " + short_repr(o));
    }
    if (item.kind == Kind::kSame) {
      return objects[static_cast<size_t>(item.same)] == o || fail("two arguments are no longer the same object");
    }
    if (reinterpret_cast<PyObject*>(Py_TYPE(o)) != item.type.get()) {
      return fail(why == nullptr ? ""
                                 : str_cat("type ", reinterpret_cast<PyTypeObject*>(item.type.get())->tp_name,
                                           " became ", Py_TYPE(o)->tp_name));
    }
    objects.push_back(o);
    switch (item.kind) {
      case Kind::kNull:
      case Kind::kConst:
      case Kind::kPassive:
      case Kind::kSame: return true;
      case Kind::kInt: {
        int overflow = 0;
        const long long value = PyLong_AsLongLongAndOverflow(o, &overflow);
        return overflow == 0 ? bind(item.same, value) : fail("an integer beyond 64 bits");
      }
      case Kind::kFloat:
        return bind(item.same, number_part(o, SymbolSource::kFloatHigh)) &&
               bind(item.same + 1, number_part(o, SymbolSource::kFloatLow));
      case Kind::kNotANumber: return same_value(o, item.value.get()) || fail("a NaN became " + short_repr(o));
      case Kind::kIdentity:
        if (!item.object.is(o)) return fail("another object than before");
        return o == nullptr || reinterpret_cast<PyObject*>(Py_TYPE(o)) == item.type.get() ||
               fail("another class than before");
      case Kind::kTensor: {
        const auto tensor = static_cast<size_t>(item.same);
        const TensorDims& dims = guard.dims_[tensor];
        if (guard.check_grad && !check_needs_grad(o, guard.needs_grad_[tensor])) return false;
        if (guard.check_leaf && guard.needs_grad_[tensor] && api.is_leaf(o) != guard.leaves_[tensor]) {
          return fail(guard.leaves_[tensor] ? "a tensor is no longer a leaf" : "a tensor is a leaf");
        }
        return dims.hold(o, guard.metas_[tensor], api, symbols, why,
                         [this](int symbol, int64_t value) { return bind(symbol, value); });
      }
      case Kind::kForeign: return check_foreign(o, item);
      case Kind::kTuple:
      case Kind::kList: {
        if (item.unread) return pass_unread(item);
        if (PySequence_Fast_GET_SIZE(o) != item.count) return fail("the length of a sequence changed");
        for (Py_ssize_t i = 0; i < item.count; ++i) {
          if (!check(PySequence_Fast_GET_ITEM(o, i))) return false;
        }
        return check_attributes(o, item);
      }
      case Kind::kDict: {
        if (item.value && attr_or_null(o, "default_factory").get() != item.value.get()) {
          return fail("the default_factory of a dict changed");
        }
        if (item.unread) return pass_unread(item);
        if (item.has_maker && !check(attr_or_null(o, "default_factory").get())) return false;
        return check_dict(o, item) && check_attributes(o, item);
      }
      case Kind::kInstance: {
        if (!item.slots.empty()) return check_slots(o, item);
        const Ref attributes = attr_or_null(o, "__dict__");
        return attributes && PyDict_CheckExact(attributes.get()) && check_dict(attributes.get(), item);
      }
      case Kind::kGenerator:
        return PyObject_RichCompareBool(attr_or_null(o, "device").get(), item.value.get(), Py_EQ) == 1 ||
               fail("the device of a generator changed");
      case Kind::kEmptySet: return PySet_GET_SIZE(o) == 0 || fail("a set is not empty any longer");
      case Kind::kCell: return check(PyCell_GET(o));
      case Kind::kMethod: return check(PyMethod_GET_SELF(o)) && check(PyMethod_GET_FUNCTION(o));
      case Kind::kFunction:
        if (!is_of_code(o, item.keys[0].get(), item.keys[1].get())) return fail("a function of another code");
        for (PyObject* part : parts_of_function(o)) {
          if (!check(part)) return false;
        }
        return true;
    }
    return false;
  }

  bool check_foreign(PyObject* o, const Item& item) const {
    const std::vector<Ref> now = api.foreign_facts(o);
    if (now.size() != item.keys.size()) return fail("a sparse tensor became a quantised one");
    for (size_t i = 0; i < now.size(); ++i) {
      if (now[i].get() == item.keys[i].get()) continue;
      const int same = PyObject_RichCompareBool(now[i].get(), item.keys[i].get(), Py_EQ);
      if (same < 0) forget_error();
      if (same != 1) return fail("a sparse or quantised tensor of another layout, type, place or size");
    }
    return true;
  }

  bool pass_unread(const Item& item) {
    at += item.unread_items;
    objects.resize(objects.size() + item.unread_objects);
    return true;
  }

  bool check_state(const State& state) {
    PyObject* iterator = state.object >= 0 ? objects[static_cast<size_t>(state.object)] : state.iterator.get();
    IteratorState now;
    if (!read_state(iterator, now)) return fail("the state of an iterator cannot be told");
    if (now.position != state.position || now.parts.size() != state.parts) {
      return fail("an iterator is at another place than before");
    }
    for (const Ref& part : now.parts) {
      if (!check(part.get())) return false;
    }
    return true;
  }

  bool check_attributes(PyObject* o, const Item& item) {
    if (!item.has_dict) return true;
    const Item& inner = guard.items_[at++];
    const Ref attributes = attr_or_null(o, "__dict__");
    return attributes && check_dict(attributes.get(), inner);
  }

  bool check_slots(PyObject* o, const Item& item) {
    return std::all_of(item.slots.begin(), item.slots.end(), [&](const auto& slot) { return check(slot.of(o)); });
  }

  bool check_dict(PyObject* dict, const Item& item) {
    if (PyDict_GET_SIZE(dict) != static_cast<Py_ssize_t>(item.keys.size())) return fail("the keys of a dict changed");
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    for (const Ref& expected : item.keys) {
      if (PyDict_Next(dict, &position, &key, &value) == 0 || !same_value(key, expected.get())) {
        return fail("the keys of a dict changed");
      }
      if (!check(value)) return false;
    }
    return is_ordered_by(dict, item.order) || fail("the order of a dict changed");
  }

  bool bind(int symbol, int64_t value) {
    int64_t& bound = symbols[static_cast<size_t>(symbol)];
    if (bound != kUnbound) {
      return bound == value ||
             fail(why == nullptr ? "" : str_cat("sizes that were equal (s", symbol, ") are ", bound, " and ", value));
    }
    const IntRange& range = guard.ranges_[static_cast<size_t>(symbol)];
    if (value < range.lo || value > range.hi) {
      return fail(why == nullptr ? "" : str_cat("symbolic integer s", symbol, " became ", value));
    }
    bound = value;
    return true;
  }

  bool check_needs_grad(PyObject* o, bool expected) const {
    if (!api.is_torch_tensor(o) || api.requires_grad(o) == expected) return true;
    return fail(expected ? "a tensor no longer requires grad" : "a tensor requires grad");
  }
};

/// Walks as Checker does, past sizes that differ; ends where the structure does.
struct ValueGuard::Comparer {
  const ValueGuard& guard;
  TorchApi& api;
  VaryingItems& dynamic;
  std::vector<PyObject*> objects;
  size_t at = 0;

  bool compare(PyObject* o) {
    const Item& item = guard.items_[at++];
    const size_t here = item.key;
    if (item.kind == Kind::kNull) return o == nullptr;
    if (o == nullptr) return false;
    if (item.kind == Kind::kConst) {
      if (other_number(item.value.get(), o)) dynamic.numbers.insert(here);
      return true;
    }
    if (item.kind == Kind::kInt || item.kind == Kind::kFloat) dynamic.numbers.insert(here);
    if (item.kind == Kind::kSame) return objects[static_cast<size_t>(item.same)] == o;
    if (reinterpret_cast<PyObject*>(Py_TYPE(o)) != item.type.get()) return false;
    objects.push_back(o);
    switch (item.kind) {
      case Kind::kNull:
      case Kind::kConst:
      case Kind::kInt:
      case Kind::kFloat:
      case Kind::kSame:
      case Kind::kPassive:
      case Kind::kEmptySet:
      case Kind::kForeign:
      case Kind::kNotANumber: return true;
      case Kind::kIdentity:
        if (api.is_module(o) && item.object.is(o)) dynamic.staying.insert(o);
        if (api.is_module(o) && !item.object.is(o)) dynamic.replaced.push_back({here, item.object.get(), o});
        if (is_random_generator(o) && !item.object.is(o)) dynamic.generators.insert(here);
        if (!item.object.is(o) && is_slotted_instance(o)) dynamic.slotted.insert(here);
        if (PyFunction_Check(o) && !item.object.is(o)) compare_functions(item.object.get(), o, here);
        return true;
      case Kind::kTensor: return compare_tensor(o, here, static_cast<size_t>(item.same));
      case Kind::kTuple:
      case Kind::kList: {
        if (item.unread) return pass_unread(item);
        if (PySequence_Fast_GET_SIZE(o) != item.count) return false;
        for (Py_ssize_t i = 0; i < item.count; ++i) {
          if (!compare(PySequence_Fast_GET_ITEM(o, i))) return false;
        }
        return compare_attributes(o, item);
      }
      case Kind::kDict:
        if (item.unread) return pass_unread(item);
        if (item.has_maker && !compare(attr_or_null(o, "default_factory").get())) return false;
        return compare_dict(o, item) && compare_attributes(o, item);
      case Kind::kInstance: {
        if (!item.slots.empty()) {
          dynamic.slotted.insert(here);
          return std::all_of(item.slots.begin(), item.slots.end(),
                             [&](const auto& slot) { return compare(slot.of(o)); });
        }
        if (api.is_module(o)) dynamic.modules.insert(here);
        const Ref attributes = attr_or_null(o, "__dict__");
        return attributes && PyDict_CheckExact(attributes.get()) && compare_dict(attributes.get(), item);
      }
      case Kind::kGenerator: dynamic.generators.insert(here); return true;
      case Kind::kCell: return compare(PyCell_GET(o));
      case Kind::kMethod: return compare(PyMethod_GET_SELF(o)) && compare(PyMethod_GET_FUNCTION(o));
      case Kind::kFunction: {
        if (!is_of_code(o, item.keys[0].get(), item.keys[1].get())) return false;
        dynamic.functions.insert(here);
        for (PyObject* part : parts_of_function(o)) {
          if (!compare(part)) return false;
        }
        return true;
      }
    }
    return false;
  }

  void compare_functions(PyObject* before, PyObject* now, size_t here) {
    if (before == nullptr || !PyFunction_Check(before) || !is_plain_function(before)) return;
    if (is_of_code(now, PyFunction_GET_CODE(before), PyFunction_GET_GLOBALS(before))) dynamic.functions.insert(here);
  }

  bool pass_unread(const Item& item) {
    at += item.unread_items;
    objects.resize(objects.size() + item.unread_objects);
    return true;
  }

  bool compare_attributes(PyObject* o, const Item& item) {
    if (!item.has_dict) return true;
    const Item& inner = guard.items_[at++];
    const Ref attributes = attr_or_null(o, "__dict__");
    return attributes && compare_dict(attributes.get(), inner);
  }

  bool compare_dict(PyObject* dict, const Item& item) {
    if (PyDict_GET_SIZE(dict) != static_cast<Py_ssize_t>(item.keys.size())) return false;
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    for (const Ref& expected : item.keys) {
      if (PyDict_Next(dict, &position, &key, &value) == 0 || !same_value(key, expected.get())) return false;
      if (!compare(value)) return false;
    }
    return is_ordered_by(dict, item.order);
  }

  bool compare_tensor(PyObject* o, size_t here, size_t tensor) {
    TensorMeta now;
    if (!api.read_meta(o, now)) return false;
    const std::optional<DimBits> bits = guard.dims_[tensor].differing(guard.metas_[tensor], now);
    if (bits) dynamic.tensors[here] |= *bits;
    return bits.has_value();
  }
};

void ValueGuard::compare(PyObject* const* roots, size_t count, TorchApi& api, VaryingItems& dynamic) const {
  if (count != root_count_) return;
  Comparer comparer{*this, api, dynamic, std::vector<PyObject*>(first_object_)};
  for (size_t i = 0; i < count; ++i) {
    if (!comparer.compare(roots[i])) return;
  }
}

bool ValueGuard::check(PyObject* const* roots, size_t count, TorchApi& api, std::vector<PyObject*>& objects,
                       std::vector<int64_t>& symbols, std::string* why) const {
  objects.clear();
  symbols.assign(ranges_.size(), kUnbound);
  if (count != root_count_) {
    if (why != nullptr) *why = "the number of arguments changed";
    return false;
  }
  Checker checker{*this, api, objects, symbols, why};
  for (size_t i = 0; i < count; ++i) {
    if (!checker.check(roots[i])) return false;
  }
  return std::all_of(states_.begin(), states_.end(), [&](const State& state) { return checker.check_state(state); });
}

bool ValueGuard::check_behind(PyObject* value, TorchApi& api, std::vector<PyObject*>& objects,
                              std::vector<int64_t>& symbols, std::string* why) const {
  if (symbols.size() < ranges_.size()) symbols.resize(ranges_.size(), kUnbound);
  return Checker{*this, api, objects, symbols, why}.check(value);
}

bool ValueGuard::same_modules(PyObject* const* roots, size_t count) const {
  return std::all_of(modules_.begin(), modules_.end(), [&](const auto& module) {
    const Item& item = items_[module.second];
    return item.kind != Kind::kIdentity || (module.first < count && item.object.is(roots[module.first]));
  });
}

bool ValueGuard::check_roots(PyObject* const* roots, size_t count, TorchApi& api) const {
  if (count != root_count_) return false;
  std::vector<PyObject*> objects;
  std::vector<int64_t> symbols(ranges_.size(), kUnbound);
  Checker checker{*this, api, objects, symbols, nullptr};
  return std::all_of(roots, roots + count, [&](PyObject* root) { return checker.check(root); });
}

}  // namespace tatara::capture
