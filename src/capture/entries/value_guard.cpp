// Making a guard of the values that a trace begins with. Its checks are in value_guard_check.cpp.
#include "capture/entries/value_guard.h"

#include <algorithm>

#include "capture/entries/number_ranges.h"
#include "capture/host/iterator_state.h"
#include "capture/host/natures.h"

namespace tatara::capture {
namespace {

constexpr int kMaxDepth = 12;

/// The key of what is in the item `outer`, there as number (or under the name with the hash) `place`. It does not depend on what
/// else is there: items keep their keys when a list before them grows.
size_t inner_key(size_t outer, size_t place) {
  constexpr size_t kOdd = 0x9E3779B97F4A7C15;
  size_t mixed = (outer + 1) * kOdd ^ (place + kOdd);
  mixed = (mixed ^ (mixed >> 31)) * kOdd;
  return mixed ^ (mixed >> 29);
}

size_t inner_key(size_t outer, PyObject* name, size_t place) {
  return inner_key(outer, PyUnicode_CheckExact(name) ? static_cast<size_t>(PyObject_Hash(name)) : place);
}

}  // namespace

struct ValueGuard::Builder {
  ValueGuard& guard;
  TorchApi& api;
  std::vector<PyObject*>& objects;
  const DynamicDims& dynamic;
  TraceSymbols& symbols;
  std::unordered_map<PyObject*, int> index;
  TensorDims::Shared by_size;
  int modules = 0;  // around the item
  int functions = 0;

  /// Where an object was found: a root, or something that can hold another object in its place.
  struct Place {
    size_t root = SIZE_MAX;
    PyObject* holder = nullptr;  // a list, dict or tuple, or an instance with slots
    PyObject* key = nullptr;     // of a dict; the name of a slot
    Py_ssize_t index = 0;        // of a list or tuple
    Ref key_of_holder() const { return key != nullptr ? Ref::borrow(key) : Ref::steal(PyLong_FromSsize_t(index)); }
  };

  bool is_placed_root(const Place& place) const {
    return place.root < dynamic.places.size() && dynamic.places[place.root] >= 0;
  }

  /// Another tuple of the class can be made, and stand in its place.
  bool can_be_replaced(PyObject* tuple, const Place& place) const {
    if (dynamic.numbers.empty() || (!is_placed_root(place) && place.holder == nullptr)) return false;
    PyTypeObject* const type = Py_TYPE(tuple);
    return type == &PyTuple_Type ||
           (is_python_class(type) && type->tp_dictoffset == 0 && type->tp_basicsize == PyTuple_Type.tp_basicsize);
  }

  bool holds_symbols(PyObject* tuple) const {
    const auto inside = [tuple](const auto& item) { return item.holder.get() == tuple; };
    return std::any_of(guard.symbolic_items_.begin(), guard.symbolic_items_.end(), inside) ||
           std::any_of(guard.symbolic_tuples_.begin(), guard.symbolic_tuples_.end(), inside);
  }

  void note_tuple(PyObject* tuple, const Place& place) {
    if (!holds_symbols(tuple)) return;
    SymbolicTuple& noted = guard.symbolic_tuples_.emplace_back();
    noted.tuple = Ref::borrow(tuple);
    if (is_placed_root(place)) noted.root = place.root;
    noted.holder = Ref::borrow(place.holder);
    if (place.holder != nullptr) noted.key = place.key_of_holder();
  }

  /// A number whose values vary, where a placeholder can be instead.
  bool add_number(PyObject* o, size_t at, const Place& place) {
    if (dynamic.mode == DynamicMode::kNever || dynamic.places.empty()) return false;
    const bool root = is_placed_root(place);
    if (!root && place.holder == nullptr) return false;
    const bool varies = dynamic.numbers.contains(guard.items_[at].key);
    const int object = static_cast<int>(objects.size());
    Expr symbol;
    IntRange range;
    if (PyFloat_CheckExact(o) && varies) {
      symbol = symbols.add_float(o, object).first;
    } else if (PyLong_CheckExact(o) && (varies || (root && dynamic.mode == DynamicMode::kAlways)) &&
               number_range(o, range)) {
      symbol = add_int(PyLong_AsLongLong(o), object, range);
    } else {
      return false;
    }
    objects.push_back(o);
    guard.items_[at].kind = PyFloat_CheckExact(o) ? Kind::kFloat : Kind::kInt;
    guard.items_[at].same = number_of(symbol);
    if (root) {
      guard.symbolic_roots_.push_back({place.root, symbol, object});
    } else {
      guard.symbolic_items_.push_back({Ref::borrow(place.holder), place.key_of_holder(), symbol, object});
    }
    return true;
  }

  Expr add_int(int64_t value, int object, IntRange range) {
    if (!dynamic.share_ints || value < 2) return symbols.add(value, {object, SymbolSource::kInt, false}, range);
    Expr& shared = by_size[value];
    if (!shared.valid()) shared = symbols.add(value, {object, SymbolSource::kInt, false}, range);
    return shared;
  }

  int number_of(Expr e) const {
    const auto found = std::find(symbols.symbols().begin(), symbols.symbols().end(), e);
    return found == symbols.symbols().end() ? -1 : static_cast<int>(found - symbols.symbols().begin());
  }

  Item& add_item(size_t key) {
    Item& item = guard.items_.emplace_back();
    item.key = key;
    return item;
  }

  /// A torch module that is another one in each call. Those in it are likewise, but for those that stay.
  bool is_made_anew(PyObject* o, size_t key) const {
    return (modules > 0 || dynamic.modules.contains(key)) && api.is_module(o) && !dynamic.staying.contains(o) &&
           is_plain_instance(o);
  }

  void add(PyObject* o, int depth, const Place& place, size_t key) {
    const size_t at = guard.items_.size();
    add_item(key);
    const auto item = [&]() -> Item& { return guard.items_[at]; };
    if (o == nullptr) return;
    item().type = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(o)));
    if (add_number(o, at, place)) return;
    if (is_atom(o, api) && (!api.is_numpy(o) || api.numpy->is_bool_scalar(o)) && !is_not_a_number(o)) {
      item().kind = Kind::kConst;
      item().value = Ref::borrow(o);
      return;
    }
    if (const auto found = index.find(o); found != index.end()) {
      item().kind = Kind::kSame;
      item().same = found->second;
      if (PyTuple_Check(o)) note_tuple(o, place);
      return;
    }
    index[o] = static_cast<int>(objects.size());
    objects.push_back(o);
    if (is_not_a_number(o)) {
      item().kind = Kind::kNotANumber;
      item().value = Ref::borrow(o);
      return;
    }
    if (api.is_tensor(o)) return add_tensor(o, item());
    if (is_made_anew(o, item().key) && depth <= kMaxDepth) {
      item().kind = Kind::kInstance;
      const Ref attributes = Ref::steal(PyObject_GenericGetDict(o, nullptr));
      ++modules;
      add_dict(attributes.get(), at, depth);
      --modules;
      return;
    }
    if (dynamic.functions.contains(item().key) && is_plain_function(o) && depth <= kMaxDepth)
      return add_function(o, item(), depth);
    if (dynamic.generators.contains(item().key) && is_random_generator(o)) {
      item().kind = Kind::kGenerator;
      item().value = attr_or_null(o, "device");
      guard.generators.push_back(objects.size() - 1);
      return;
    }
    if (is_pinned_kind(o, api) || depth > kMaxDepth) return identity(o, item());
    if (is_c_iterator(o) && !is_python_class(Py_TYPE(o))) {
      // Its state is not looked at before the trace moves it on (watch_iterator).
      item().kind = Kind::kPassive;
      return;
    }
    if (PyTuple_Check(o) || PyList_CheckExact(o)) {
      item().kind = PyTuple_Check(o) ? Kind::kTuple : Kind::kList;
      const Ref attributes = PyTuple_Check(o) && !PyTuple_CheckExact(o) ? attr_or_null(o, "__dict__") : Ref();
      item().has_dict = attributes && PyDict_CheckExact(attributes.get());
      const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
      item().count = static_cast<int>(n);
      PyObject* holder = PyList_Check(o) || can_be_replaced(o, place) ? o : nullptr;
      for (Py_ssize_t i = 0; i < n; ++i) {
        add(PySequence_Fast_GET_ITEM(o, i), depth + 1, {SIZE_MAX, holder, nullptr, i},
            inner_key(key, static_cast<size_t>(i)));
      }
      if (guard.items_[at].has_dict) add_attributes(attributes.get(), at, depth);
      if (PyTuple_Check(o) && holder != nullptr) note_tuple(o, place);
      return;
    }
    if (PySet_CheckExact(o) && PySet_GET_SIZE(o) == 0) {
      item().kind = Kind::kEmptySet;
      return;
    }
    if (PyCell_Check(o)) return add_cell(o, item(), depth, place);
    if (PyMethod_Check(o)) {
      item().kind = Kind::kMethod;
      add(PyMethod_GET_SELF(o), depth + 1, {}, inner_key(key, 0));
      return add(PyMethod_GET_FUNCTION(o), depth + 1, {}, inner_key(key, 1));
    }
    if (PyDict_Check(o)) {
      item().kind = Kind::kDict;
      const Ref attributes = PyDict_CheckExact(o) ? Ref() : attr_or_null(o, "__dict__");
      item().has_dict = attributes && PyDict_CheckExact(attributes.get());
      const Ref maker = is_defaultdict(o) ? attr_or_null(o, "default_factory") : Ref();
      item().has_maker = maker && is_plain_function(maker.get());
      if (item().has_maker) {
        add(maker.get(), depth + 1, {}, inner_key(key, SIZE_MAX - 1));
      } else {
        item().value = maker;
      }
      add_dict(o, at, depth);
      if (guard.items_[at].has_dict) add_attributes(attributes.get(), at, depth);
      return;
    }
    if (is_plain_instance(o)) {
      item().kind = Kind::kInstance;
      const Ref attributes = attr(o, "__dict__");
      return add_dict(attributes.get(), at, depth);
    }
    if (add_slots(o, at, depth)) return;
    if (is_torch_guard(Py_TYPE(o))) {
      item().kind = Kind::kPassive;  // all that can be done with it breaks the graph
      return;
    }
    identity(o, item());
  }

  void add_function(PyObject* o, Item& item, int depth) {
    const size_t key = item.key;
    item.kind = Kind::kFunction;
    item.keys = {Ref::borrow(PyFunction_GET_CODE(o)), Ref::borrow(PyFunction_GET_GLOBALS(o))};
    ++functions;
    size_t place = 0;
    for (PyObject* part : parts_of_function(o)) add(part, depth + 1, {}, inner_key(key, place++));
    --functions;
  }

  /// Objects in cells of functions are guarded by identity: such a cell is most often `self`.
  void add_cell(PyObject* o, Item& item, int depth, const Place& place) {
    const size_t key = item.key;
    item.kind = Kind::kCell;
    PyObject* content = PyCell_GET(o);
    const bool of_function = (place.root != SIZE_MAX && place.root >= dynamic.cells_from) || functions > 0;
    const bool object = of_function && content != nullptr && is_plain_instance(content) && PyDict_Check(content) == 0 &&
                        !index.contains(content);
    if (!object) return add(content, depth + 1, {}, inner_key(key, 0));
    Item& inner = add_item(inner_key(key, 0));
    inner.type = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(content)));
    index[content] = static_cast<int>(objects.size());
    identity(content, inner);
    guard.in_cells.push_back(objects.size());
    objects.push_back(content);
  }

  void identity(PyObject* o, Item& item) {
    item.kind = Kind::kIdentity;
    item.object = HeldObject(o);
    guard.by_identity.push_back(static_cast<size_t>(index.at(o)));
  }

  void add_attributes(PyObject* dict, size_t at, int depth) {
    const size_t inner = guard.items_.size();
    add_item(inner_key(guard.items_[at].key, SIZE_MAX)).kind = Kind::kInstance;
    add_dict(dict, inner, depth);
  }

  bool add_slots(PyObject* o, size_t at, int depth) {
    if (!dynamic.slotted.contains(guard.items_[at].key)) return false;
    const std::vector<InstanceSlot> slots = instance_slots(o);
    if (slots.empty()) return false;
    guard.items_[at].kind = Kind::kInstance;
    for (const InstanceSlot& slot : slots) {
      guard.items_[at].keys.push_back(Ref::steal(PyUnicode_InternFromString(slot.name)));
    }
    guard.items_[at].slots = slots;
    for (size_t i = 0; i < slots.size(); ++i) {
      PyObject* name = guard.items_[at].keys[i].get();
      add(slots[i].of(o), depth + 1, {SIZE_MAX, o, name, 0}, inner_key(guard.items_[at].key, name, i));
    }
    return true;
  }

  void add_dict(PyObject* dict, size_t at, int depth) {
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    std::vector<PyObject*> values;
    while (PyDict_Next(dict, &position, &key, &value) != 0) {
      guard.items_[at].keys.push_back(Ref::borrow(key));
      values.push_back(value);
    }
    guard.items_[at].order = ordered_keys(dict);
    PyObject* holder = PyDict_CheckExact(dict) || is_defaultdict(dict) ? dict : nullptr;
    for (size_t i = 0; i < values.size(); ++i) {
      PyObject* name = guard.items_[at].keys[i].get();
      add(values[i], depth + 1, {SIZE_MAX, holder, name, 0}, inner_key(guard.items_[at].key, name, i));
    }
  }

  /// A lazily conjugated view without a history: what is asked of one that has gradients would be asked of another tensor.
  bool read_conjugate(PyObject* o, TensorMeta& meta) const {
    const Ref plain = attribute_is_true(o, "requires_grad") ? Ref() : api.beneath(o);
    meta.conjugate = plain && api.read_meta(plain.get(), meta);
    return meta.conjugate;
  }

  void add_tensor(PyObject* o, Item& item) {
    TensorMeta meta;
    if (!api.is_plain_tensor(o) || !(api.read_meta(o, meta) || read_conjugate(o, meta))) {
      if (api.is_foreign(o)) {
        item.kind = Kind::kForeign;
        item.keys = api.foreign_facts(o);
        return;
      }
      if (guard.unsupported_tensor.empty()) guard.unsupported_tensor = api.why_not(o);
      return identity(o, item);
    }
    guard.needs_grad_.push_back(attribute_is_true(o, "requires_grad"));
    guard.leaves_.push_back(attribute_is_true(o, "is_leaf"));
    item.kind = Kind::kTensor;
    item.same = static_cast<int>(guard.metas_.size());
    guard.dims_.push_back(make_dims(o, meta, item.key));
    guard.metas_.push_back(std::move(meta));
    guard.tensor_indices_.push_back(static_cast<int>(objects.size()) - 1);
  }

  TensorDims make_dims(PyObject* tensor, const TensorMeta& meta, size_t key) {
    if (dynamic.mode == DynamicMode::kNever) return {};
    const auto found = dynamic.tensors.find(key);
    DimBits varying = found != dynamic.tensors.end() ? found->second : DimBits();
    varying.sizes |= marked_dimensions(tensor, meta.sizes.size());
    const int object = static_cast<int>(objects.size()) - 1;
    return {meta, varying, dynamic.mode == DynamicMode::kAlways, object, by_size, symbols};
  }
};

void ValueGuard::build(PyObject* const* roots, size_t count, TorchApi& api, const DynamicDims& dynamic,
                       TraceSymbols& symbols, std::vector<PyObject*>& objects) {
  root_count_ = count;
  Builder builder{*this, api, objects, dynamic, symbols, {}, {}};
  for (size_t i = 0; i < count; ++i) {
    if (roots[i] != nullptr && api.is_module(roots[i])) modules_.emplace_back(i, items_.size());
    builder.add(roots[i], 0, {i, nullptr, nullptr, 0}, i);
  }
  ranges_ = symbols.ranges();
}

void ValueGuard::build_behind(PyObject* value, TorchApi& api, const DynamicDims& dynamic, TraceSymbols& symbols,
                              std::vector<PyObject*>& objects) {
  root_count_ = 1;
  first_object_ = objects.size();
  check_grad = check_leaf = true;
  Builder builder{*this, api, objects, dynamic, symbols, {}, {}};
  for (size_t i = 0; i < objects.size(); ++i) builder.index.emplace(objects[i], static_cast<int>(i));
  for (size_t i = 0; i < symbols.symbols().size(); ++i) {
    const SymbolSource& source = symbols.sources()[i];
    if (source.object >= 0 && source.dim >= 0 && !source.stride)
      builder.by_size.emplace(symbols.hints()[i], symbols.symbols()[i]);
  }
  Builder::Place place;
  if (!dynamic.places.empty()) place.root = 0;
  builder.add(value, 0, place, 0);
  ranges_ = symbols.ranges();
}

std::vector<PyObject*> ValueGuard::watch_iterator(PyObject* iterator, int object, TorchApi& api, TraceSymbols& symbols,
                                                  std::vector<PyObject*>& objects) {
  DynamicDims fixed;
  fixed.mode = DynamicMode::kNever;
  Builder builder{*this, api, objects, fixed, symbols, {}, {}};
  for (size_t i = 0; i < objects.size(); ++i) builder.index.emplace(objects[i], static_cast<int>(i));
  std::vector<PyObject*> watched{iterator};
  std::vector<int> indices{object};
  const auto known = [&](int index) {
    return std::find(indices.begin(), indices.end(), index) != indices.end() ||
           std::any_of(states_.begin(), states_.end(), [index](const State& s) { return s.object == index; });
  };
  for (size_t i = 0; i < watched.size(); ++i) {
    IteratorState state;
    if (!read_state(watched[i], state)) return {};
    HeldObject held = indices[i] < 0 ? HeldObject(watched[i]) : HeldObject();
    states_.push_back({indices[i], std::move(held), state.parts.size(), state.position});
    for (const Ref& part : state.parts) {
      builder.add(part.get(), 1, {}, 0);
      if (!is_c_iterator(part.get())) continue;
      const int index = builder.index.at(part.get());
      if (known(index)) continue;
      watched.push_back(part.get());
      indices.push_back(index);
    }
  }
  return watched;
}

const SymbolicLayout* ValueGuard::layout(int object) const {
  for (size_t i = 0; i < tensor_indices_.size(); ++i) {
    if (tensor_indices_[i] == object) return dims_[i].symbolic() ? &dims_[i].layout() : nullptr;
  }
  return nullptr;
}

}  // namespace tatara::capture
