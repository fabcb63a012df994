#include "capture/entries/guards.h"

#include <algorithm>
#include <numeric>

#include "capture/host/natures.h"
#include "capture/host/numpy_api.h"
#include "ir/graph.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

constexpr int kMaxDepth = 12;

}  // namespace

bool other_number(PyObject* before, PyObject* now) {
  if (before == nullptr || now == nullptr) return false;
  const bool ints = PyLong_CheckExact(before) && PyLong_CheckExact(now);
  const bool floats = PyFloat_CheckExact(before) && PyFloat_CheckExact(now);
  return (ints || floats) && !same_value(before, now);
}

namespace {

constexpr int64_t kUsual = int64_t{1} << 31;    // products of two such numbers fit in 64 bits
constexpr int64_t kLargest = int64_t{1} << 62;  // and sums of two of these

/// Numbers are in the smallest of these ranges, so that little arithmetic with them needs a guard against overflow.
IntRange range_around(int64_t value) {
  const int64_t most = value >= -kUsual && value <= kUsual ? kUsual : kLargest;
  return {-most, most};
}

}  // namespace

bool any_number_range(PyObject* number, IntRange& range) {
  if (!PyLong_CheckExact(number)) return false;
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  range = range_around(value);
  return overflow == 0 && value >= range.lo && value <= range.hi;
}

IntRange size_range(int64_t size) { return {2, size <= kUsual ? kUsual : kLargest}; }

bool number_range(PyObject* number, IntRange& range) {
  if (!any_number_range(number, range)) return false;
  const long long value = PyLong_AsLongLong(number);
  range = value > 0 ? IntRange{2, range.hi} : IntRange{range.lo, -1};
  return value != 0 && value != 1;
}

// ---- Structural guards -----------------------------------------------------------------------------------------------

namespace {

constexpr int64_t kUnbound = INT64_MIN;

/// Strides as products of the tensor's own sizes where they have such values; constants otherwise.
std::vector<Expr> derive_strides(ExprContext& ctx, const TensorMeta& meta, const std::vector<Expr>& sizes) {
  const size_t rank = meta.sizes.size();
  std::vector<Expr> strides = contiguous_strides(ctx, sizes);
  bool contiguous = true;
  for (size_t d = 0; d < rank; ++d) contiguous = contiguous && ctx.evaluate_hint(strides[d]) == meta.strides[d];
  if (contiguous) return strides;
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return meta.strides[a] < meta.strides[b]; });
  for (size_t k = 0; k < rank; ++k) {
    const size_t d = order[k];
    strides[d] = ctx.constant(meta.strides[d]);
    if (meta.strides[d] <= 1) continue;
    for (size_t j = k; j-- > 0;) {
      const size_t inner = order[j];
      if (meta.strides[inner] == 0 || meta.sizes[inner] <= 1) continue;
      if (meta.strides[inner] * meta.sizes[inner] != meta.strides[d]) continue;
      strides[d] = ctx.mul(strides[inner], sizes[inner]);
      break;
    }
  }
  return strides;
}

}  // namespace

struct ValueGuard::Builder {
  ValueGuard& guard;
  TorchApi& api;
  std::vector<PyObject*>& objects;
  const DynamicDims& dynamic;
  TraceSymbols& symbols;
  std::unordered_map<PyObject*, int> index;
  std::unordered_map<int64_t, Expr> by_size;  // equal sizes share a symbol

  /// Where an object was found: a root, or something that can hold another object in its place.
  struct Place {
    size_t root = SIZE_MAX;
    PyObject* holder = nullptr;  // a list or dict
    PyObject* key = nullptr;     // of a dict
    Py_ssize_t index = 0;        // of a list
  };

  /// A number whose values vary, where a placeholder can be instead.
  bool add_number(PyObject* o, size_t at, const Place& place) {
    if (dynamic.mode == DynamicMode::kNever || dynamic.places.empty()) return false;
    const bool root = place.root < dynamic.places.size() && dynamic.places[place.root] >= 0;
    if (!root && place.holder == nullptr) return false;
    const bool varies = dynamic.numbers.contains(at);
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
      Ref key = place.key != nullptr ? Ref::borrow(place.key) : Ref::steal(PyLong_FromSsize_t(place.index));
      guard.symbolic_items_.push_back({Ref::borrow(place.holder), std::move(key), symbol, object});
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

  void add(PyObject* o, int depth, const Place& place) {
    const size_t at = guard.items_.size();
    guard.items_.emplace_back();
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
    if (is_pinned_kind(o, api) || depth > kMaxDepth) return identity(o, item());
    if (place.root != SIZE_MAX && is_c_iterator(o) && !is_python_class(Py_TYPE(o))) {
      // Its state is not looked at: what would move it on, or reads it, breaks the trace.
      item().kind = Kind::kPassive;
      return;
    }
    if (PyTuple_Check(o) || PyList_CheckExact(o)) {
      item().kind = PyTuple_Check(o) ? Kind::kTuple : Kind::kList;
      const Ref attributes = PyTuple_Check(o) && !PyTuple_CheckExact(o) ? attr_or_null(o, "__dict__") : Ref();
      item().has_dict = attributes && PyDict_CheckExact(attributes.get());
      const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
      item().count = static_cast<int>(n);
      PyObject* holder = PyList_Check(o) ? o : nullptr;
      for (Py_ssize_t i = 0; i < n; ++i) {
        add(PySequence_Fast_GET_ITEM(o, i), depth + 1, {SIZE_MAX, holder, nullptr, i});
      }
      if (guard.items_[at].has_dict) add_attributes(attributes.get(), depth);
      return;
    }
    if (PyCell_Check(o)) {
      item().kind = Kind::kCell;
      PyObject* content = PyCell_GET(o);
      const bool object = place.root != SIZE_MAX && place.root >= dynamic.cells_from && content != nullptr &&
                          is_plain_instance(content) && PyDict_Check(content) == 0 && !index.contains(content);
      if (!object) return add(content, depth + 1, {});
      guard.items_.emplace_back();
      Item& inner = guard.items_.back();
      inner.type = Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(content)));
      index[content] = static_cast<int>(objects.size());
      identity(content, inner);
      guard.in_cells.push_back(objects.size());
      objects.push_back(content);
      return;
    }
    if (PyMethod_Check(o)) {
      item().kind = Kind::kMethod;
      add(PyMethod_GET_SELF(o), depth + 1, {});
      return add(PyMethod_GET_FUNCTION(o), depth + 1, {});
    }
    if (PyDict_Check(o)) {
      item().kind = Kind::kDict;
      const Ref attributes = PyDict_CheckExact(o) ? Ref() : attr_or_null(o, "__dict__");
      item().has_dict = attributes && PyDict_CheckExact(attributes.get());
      if (is_defaultdict(o)) item().value = attr_or_null(o, "default_factory");
      add_dict(o, at, depth);
      if (guard.items_[at].has_dict) add_attributes(attributes.get(), depth);
      return;
    }
    if (is_plain_instance(o)) {
      item().kind = Kind::kInstance;
      const Ref attributes = attr(o, "__dict__");
      return add_dict(attributes.get(), at, depth);
    }
    identity(o, item());
  }

  void identity(PyObject* o, Item& item) {
    item.kind = Kind::kIdentity;
    item.object = HeldObject(o);
    guard.by_identity.push_back(static_cast<size_t>(index.at(o)));
  }

  void add_attributes(PyObject* dict, int depth) {
    const size_t inner = guard.items_.size();
    guard.items_.emplace_back();
    guard.items_[inner].kind = Kind::kInstance;
    add_dict(dict, inner, depth);
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
    PyObject* holder = PyDict_CheckExact(dict) ? dict : nullptr;
    for (size_t i = 0; i < values.size(); ++i) {
      PyObject* name = guard.items_[at].keys[i].get();
      add(values[i], depth + 1, {SIZE_MAX, holder, name, 0});
    }
  }

  void add_tensor(PyObject* o, Item& item) {
    TensorMeta meta;
    if (!api.is_plain_tensor(o) || !api.read_meta(o, meta)) {
      if (guard.unsupported_tensor.empty()) guard.unsupported_tensor = api.why_not(o);
      return identity(o, item);
    }
    guard.needs_grad_.push_back(attribute_is_true(o, "requires_grad"));
    guard.leaves_.push_back(attribute_is_true(o, "is_leaf"));
    item.kind = Kind::kTensor;
    item.same = static_cast<int>(guard.metas_.size());
    guard.dims_.push_back(make_dims(o, meta, static_cast<size_t>(&item - guard.items_.data())));
    guard.metas_.push_back(std::move(meta));
    guard.tensor_indices_.push_back(static_cast<int>(objects.size()) - 1);
  }

  /// The dimensions that the caller marked with tatara.mark_dynamic.
  uint64_t marked(PyObject* tensor, size_t rank) const {
    const Ref dims = attr_or_null(tensor, "_tatara_dynamic");
    uint64_t mask = 0;
    if (!dims || !PyTuple_Check(dims.get())) return mask;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(dims.get()); ++i) {
      long long d = PyLong_AsLongLong(PyTuple_GET_ITEM(dims.get(), i));
      if (d < 0) d += static_cast<long long>(rank);
      if (d >= 0 && d < 64) mask |= uint64_t{1} << d;
    }
    forget_error();
    return mask;
  }

  Dims make_dims(PyObject* tensor, const TensorMeta& meta, size_t at) {
    Dims dims;
    const size_t rank = meta.sizes.size();
    if (meta.device_type == kNumpyDevice) return dims;
    if (dynamic.mode == DynamicMode::kNever || rank == 0 || rank > 64 || meta.strides.size() != rank) return dims;
    const auto seen = [at](const std::unordered_map<size_t, uint64_t>& map) {
      const auto found = map.find(at);
      return found == map.end() ? uint64_t{0} : found->second;
    };
    uint64_t wanted = dynamic.mode == DynamicMode::kAlways ? ~uint64_t{0} : seen(dynamic.sizes) | marked(tensor, rank);
    // Tensors of integers are ids, positions and masks: all their sizes come from data, and vary sooner or later.
    constexpr uint8_t kFloat = 2, kBfloat = 4, kComplex = 5;  // of DLPack
    const bool floating = meta.code == kFloat || meta.code == kBfloat || meta.code == kComplex || meta.code > 6;
    if (wanted != 0 && !floating) wanted = ~uint64_t{0};
    const uint64_t free_strides = seen(dynamic.strides);
    for (size_t d = 0; d < rank; ++d) {
      if (meta.sizes[d] < 2) wanted &= ~(uint64_t{1} << d);
    }
    const uint64_t inside = rank == 64 ? ~uint64_t{0} : (uint64_t{1} << rank) - 1;
    if (((wanted | free_strides) & inside) == 0) return dims;
    ExprContext& ctx = symbols.ctx();
    const int object = static_cast<int>(objects.size()) - 1;
    for (size_t d = 0; d < rank; ++d) {
      Expr size = ctx.constant(meta.sizes[d]);
      if ((wanted >> d & 1) != 0) {
        Expr& shared = by_size[meta.sizes[d]];
        if (!shared.valid())
          shared = symbols.add(meta.sizes[d], {object, static_cast<int>(d), false}, size_range(meta.sizes[d]));
        size = shared;
      }
      dims.layout.sizes.push_back(size);
    }
    dims.layout.strides = derive_strides(ctx, meta, dims.layout.sizes);
    for (size_t d = 0; d < rank; ++d) {
      if ((free_strides >> d & 1) == 0 || !dims.layout.strides[d].is_const() || meta.strides[d] < 2) continue;
      dims.layout.strides[d] =
          symbols.add(meta.strides[d], {object, static_cast<int>(d), true}, size_range(meta.strides[d]));
    }
    for (size_t d = 0; d < rank; ++d) {
      dims.size_symbols.push_back(number_of(dims.layout.sizes[d]));
      const Expr stride = dims.layout.strides[d];
      // A stride that is a size's symbol was bound by that size: compare it as a program.
      const int own = number_of(stride);
      const bool free = own >= 0 && symbols.sources()[static_cast<size_t>(own)].stride;
      dims.stride_symbols.push_back(free ? own : -1);
      if (!free && !stride.is_const()) dims.strides.emplace_back(static_cast<int>(d), symbols.program(stride));
    }
    return dims;
  }
};

void ValueGuard::build(PyObject* const* roots, size_t count, TorchApi& api, const DynamicDims& dynamic,
                       TraceSymbols& symbols, std::vector<PyObject*>& objects) {
  root_count_ = count;
  Builder builder{*this, api, objects, dynamic, symbols, {}, {}};
  for (size_t i = 0; i < count; ++i) builder.add(roots[i], 0, {i, nullptr, nullptr, 0});
  ranges_ = symbols.ranges();
  ctx_ = symbols.ctx_ptr();
}

const ValueGuard::SymbolicLayout* ValueGuard::layout(int object) const {
  for (size_t i = 0; i < tensor_indices_.size(); ++i) {
    if (tensor_indices_[i] == object) return dims_[i].layout.sizes.empty() ? nullptr : &dims_[i].layout;
  }
  return nullptr;
}

struct ValueGuard::Checker {
  const ValueGuard& guard;
  TorchApi& api;
  std::vector<PyObject*>& objects;
  std::vector<int64_t>& symbols;
  std::string* why;
  size_t at = 0;

  bool fail(std::string text) const {
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
        const Dims& dims = guard.dims_[tensor];
        if (guard.check_grad && !check_needs_grad(o, guard.needs_grad_[tensor])) return false;
        if (guard.check_leaf && guard.needs_grad_[tensor] && attribute_is_true(o, "is_leaf") != guard.leaves_[tensor]) {
          return fail(guard.leaves_[tensor] ? "a tensor is no longer a leaf" : "a tensor is a leaf");
        }
        return dims.layout.sizes.empty() ? check_tensor(o, guard.metas_[tensor])
                                         : check_symbolic(o, guard.metas_[tensor], dims);
      }
      case Kind::kTuple:
      case Kind::kList: {
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
        return check_dict(o, item) && check_attributes(o, item);
      }
      case Kind::kInstance: {
        const Ref attributes = attr_or_null(o, "__dict__");
        return attributes && PyDict_CheckExact(attributes.get()) && check_dict(attributes.get(), item);
      }
      case Kind::kCell: return check(PyCell_GET(o));
      case Kind::kMethod: return check(PyMethod_GET_SELF(o)) && check(PyMethod_GET_FUNCTION(o));
    }
    return false;
  }

  bool check_attributes(PyObject* o, const Item& item) {
    if (!item.has_dict) return true;
    const Item& inner = guard.items_[at++];
    const Ref attributes = attr_or_null(o, "__dict__");
    return attributes && check_dict(attributes.get(), inner);
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

  bool check_symbolic(PyObject* o, const TensorMeta& expected, const Dims& dims) {
    TensorMeta now;
    if (!api.read_meta(o, now)) return fail(why == nullptr ? "" : "an input became " + api.why_not(o));
    const size_t rank = expected.sizes.size();
    if (now.code != expected.code || now.bits != expected.bits || now.device_type != expected.device_type ||
        now.device_id != expected.device_id || now.sizes.size() != rank || now.strides.size() != rank) {
      return fail("the dtype, device or number of dimensions of a tensor changed");
    }
    for (size_t d = 0; d < rank; ++d) {
      if (dims.size_symbols[d] >= 0) {
        if (!bind(dims.size_symbols[d], now.sizes[d])) return false;
      } else if (now.sizes[d] != expected.sizes[d]) {
        return fail(
            why == nullptr ? "" : str_cat("size ", d, " of a tensor: ", expected.sizes[d], " became ", now.sizes[d]));
      }
    }
    for (size_t d = 0; d < rank; ++d) {
      if (dims.stride_symbols[d] >= 0) {
        if (!bind(dims.stride_symbols[d], now.strides[d])) return false;
      } else if (dims.layout.strides[d].is_const() && now.strides[d] != expected.strides[d]) {
        return fail(why == nullptr
                        ? ""
                        : str_cat("stride ", d, " of a tensor: ", expected.strides[d], " became ", now.strides[d]));
      }
    }
    for (const auto& [d, program] : dims.strides) {
      if (program.try_evaluate(symbols) != now.strides[static_cast<size_t>(d)]) {
        return fail(why == nullptr ? ""
                                   : str_cat("stride ", d, " of a tensor is no longer ",
                                             dims.layout.strides[static_cast<size_t>(d)].str()));
      }
    }
    return true;
  }

  bool check_needs_grad(PyObject* o, bool expected) const {
    static PyObject* const name = PyUnicode_InternFromString("requires_grad");
    if (!api.is_torch_tensor(o)) return true;
    const Ref now = Ref::steal(PyObject_GetAttr(o, name));
    if (!now) forget_error();
    if ((now.get() == Py_True) == expected) return true;
    return fail(expected ? "a tensor no longer requires grad" : "a tensor requires grad");
  }

  bool check_tensor(PyObject* o, const TensorMeta& expected) {
    if (api.matches(o, expected)) return true;
    if (why == nullptr) return false;
    TensorMeta now;
    if (!api.read_meta(o, now)) return fail(why == nullptr ? "" : "an input became " + api.why_not(o));
    if (now.sizes != expected.sizes) {
      const auto text = [](const std::vector<int64_t>& v) {
        std::string s = "[";
        for (size_t i = 0; i < v.size(); ++i) s += str_cat(i == 0 ? "" : ", ", v[i]);
        return s + "]";
      };
      return fail("tensor sizes " + text(expected.sizes) + " became " + text(now.sizes));
    }
    if (now.strides != expected.strides) return fail("the strides of a tensor changed");
    return fail("the dtype or device of a tensor changed");
  }
};

/// Walks as Checker does, past sizes that differ; ends where the structure does.
struct ValueGuard::Comparer {
  const ValueGuard& guard;
  TorchApi& api;
  DynamicDims& dynamic;
  std::vector<PyObject*> objects;
  size_t at = 0;

  bool compare(PyObject* o) {
    const size_t here = at++;
    const Item& item = guard.items_[here];
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
      case Kind::kNotANumber:
      case Kind::kIdentity: return true;
      case Kind::kTensor: return compare_tensor(o, here, static_cast<size_t>(item.same));
      case Kind::kTuple:
      case Kind::kList: {
        if (PySequence_Fast_GET_SIZE(o) != item.count) return false;
        for (Py_ssize_t i = 0; i < item.count; ++i) {
          if (!compare(PySequence_Fast_GET_ITEM(o, i))) return false;
        }
        return compare_attributes(o, item);
      }
      case Kind::kDict: return compare_dict(o, item) && compare_attributes(o, item);
      case Kind::kInstance: {
        const Ref attributes = attr_or_null(o, "__dict__");
        return attributes && PyDict_CheckExact(attributes.get()) && compare_dict(attributes.get(), item);
      }
      case Kind::kCell: return compare(PyCell_GET(o));
      case Kind::kMethod: return compare(PyMethod_GET_SELF(o)) && compare(PyMethod_GET_FUNCTION(o));
    }
    return false;
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
    const TensorMeta& before = guard.metas_[tensor];
    const Dims& dims = guard.dims_[tensor];
    TensorMeta now;
    if (!api.read_meta(o, now) || now.sizes.size() != before.sizes.size() || now.sizes.size() > 64) return false;
    bool sizes_differ = false;
    for (size_t d = 0; d < now.sizes.size(); ++d) {
      const uint64_t bit = uint64_t{1} << d;
      const bool symbolic = !dims.layout.sizes.empty() && dims.size_symbols[d] >= 0;
      const bool differs = now.sizes[d] != before.sizes[d];
      sizes_differ = sizes_differ || differs;
      if (symbolic || differs) dynamic.sizes[here] |= bit;
    }
    for (size_t d = 0; d < now.strides.size() && d < before.strides.size(); ++d) {
      const bool symbolic = !dims.layout.sizes.empty() && dims.stride_symbols[d] >= 0;
      // Strides follow from sizes most often: their own symbols only where no size explains the difference.
      if (symbolic || (!sizes_differ && now.strides[d] != before.strides[d])) {
        dynamic.strides[here] |= uint64_t{1} << d;
      }
    }
    return true;
  }
};

void ValueGuard::compare(PyObject* const* roots, size_t count, TorchApi& api, DynamicDims& dynamic) const {
  if (count != root_count_) return;
  Comparer comparer{*this, api, dynamic, {}};
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
  return true;
}

// ---- Identities ------------------------------------------------------------------------------------------------------

bool Identities::hold(const std::vector<PyObject*>& objects, std::string* why) const {
  const auto other = [&](const Pair& pair) {
    return pair.other >= 0 ? objects[static_cast<size_t>(pair.other)] : pair.value.get();
  };
  for (const Pair& pair : same) {
    PyObject* now = objects[static_cast<size_t>(pair.object)];
    if (now == other(pair)) continue;
    if (why != nullptr)
      *why = str_cat("another object (", type_name(now), ") in the place of one that is elsewhere, too");
    return false;
  }
  for (const Pair& pair : apart) {
    PyObject* now = objects[static_cast<size_t>(pair.object)];
    if (now != other(pair)) continue;
    if (why != nullptr) *why = str_cat("two objects (", type_name(now), ") have become one");
    return false;
  }
  return true;
}

// ---- Global state ----------------------------------------------------------------------------------------------------

namespace {

bool dual_level_open(const TorchApi& api) {
  if (!api.forward_ad) return false;
  PyObject* level = PyDict_GetItem(PyModule_GetDict(api.forward_ad.get()), api.current_level_key.get());
  if (level == nullptr || PyLong_Check(level) == 0 || PyLong_AsLong(level) < 0) return false;
  // Where tangents are switched off nobody sees them.
  const Ref on = Ref::steal(PyObject_CallMethod(api.core.get(), "_is_fwd_grad_enabled", nullptr));
  if (!on) forget_error();
  return on.get() != Py_False;
}

/// What a function without arguments gives, if that is something.
bool answers(const Ref& function, PyObject* argument = nullptr) {
  if (!function) return false;
  const Ref answer = Ref::steal(PyObject_CallFunctionObjArgs(function.get(), argument, nullptr));
  if (!answer) forget_error();
  return answer && answer.get() != Py_None;
}

bool leaves_out_autograd(const TorchApi& api) {
  const Ref answer = Ref::steal(PyObject_CallFunction(api.key_is_excluded.get(), "s", "AutogradFunctionality"));
  if (!answer) forget_error();
  return answer.get() == Py_True;
}

long dispatch_modes_on(const TorchApi& api) {
  const Ref count = api.dispatch_modes ? Ref::steal(PyObject_CallNoArgs(api.dispatch_modes.get())) : Ref();
  const long result = count ? PyLong_AsLong(count.get()) : 0;
  if (!count) forget_error();
  return result;
}

}  // namespace

bool in_a_dispatch_mode(const TorchApi& api) { return dispatch_modes_on(api) != 0; }
bool in_a_level(const TorchApi& api) { return answers(api.interpreter_stack) || dual_level_open(api); }

GlobalState GlobalState::read(TorchApi& api) {
  GlobalState result;
  if (api.numpy != nullptr) result.errstate = api.numpy->errstate();
  if (!api.present()) return result;
  const auto flag = [](const Ref& fn) {
    const Ref answer = Ref::steal(PyObject_CallNoArgs(fn.get()));
    if (!answer) forget_error();
    return answer.get() == Py_True;
  };
  result.grad = flag(api.is_grad_enabled);
  result.inference = flag(api.is_inference);
  result.autocast = AutocastState::read(api);
  result.transformed = answers(api.interpreter_stack);
  result.dual = dual_level_open(api);
  result.recorded = answers(api.tracing_state);
  result.saved_hooks = answers(api.saved_tensor_hooks, Py_True);
  result.deterministic = flag(api.deterministic);
  result.overrides = flag(api.overrides_enabled);
  result.no_autograd = !result.inference && leaves_out_autograd(api);
  result.default_dtype = Ref::steal(PyObject_CallNoArgs(api.get_default_dtype.get()));
  const Ref depth = Ref::steal(PyObject_CallNoArgs(api.mode_stack_len.get()));
  if (depth) result.modes = PyLong_AsLong(depth.get());
  result.dispatch_modes = dispatch_modes_on(api);
  forget_error();
  if (TorchNative::get().reads_state()) result.native = TorchNative::get().state();
  return result;
}

std::string GlobalState::waits_for(bool looking) const {
  if (recorded) return "torch.jit.trace is at work: it records the operators of eager";
  if (saved_hooks && grad) {
    return "hooks on saved tensors are on (a checkpoint, or tensors kept elsewhere): eager calls them";
  }
  if (dual && !looking) return "a level of forward-mode derivatives is open: its tensors run in eager";
  if (transformed && !looking) return "a transform of torch.func is at work: its tensors run in eager";
  if (dispatch_modes != 0) return "a torch-dispatch mode is on: it sees the operators of eager";
  if (no_autograd) return "torch's dispatcher leaves its autograd out: operators have no history";
  if (inference && grad) return "gradients are on in inference mode, where nothing is recorded";
  if (!overrides) return "__torch_function__ is switched off: capture sees torch's calls by one of its own";
  if (modes != 0) return "a torch function mode is on: compiled code waits until it is off";
  return {};
}

bool GlobalState::check(TorchApi& api, std::string* why) const {
  const auto torch_is_same = [this, &api] {
    if (!api.present()) return true;
    const TorchNative& torch = TorchNative::get();
    // The thread's dispatch keys tell whether autocast is on, not to which dtype.
    return torch.reads_state() && torch.state() == native && (!autocast.any || AutocastState::read(api) == autocast) &&
           dual_level_open(api) == dual && (!saves_tensors || answers(api.saved_tensor_hooks, Py_True) == saved_hooks);
  };
  // A trace before NumPy's import has not called it.
  const bool numpy_is_same = !errstate || api.numpy->errstate().get() == errstate.get();
  if (numpy_is_same && torch_is_same()) return true;
  // Other dispatch keys need not mean another behaviour: ask for what counts.
  const GlobalState now = read(api);
  const auto fail = [why](const char* what) {
    if (why != nullptr) *why = what;
    return false;
  };
  if (now.grad != grad) return fail("grad mode changed");
  if (now.inference != inference) return fail("inference mode changed");
  if (now.dispatch_modes != dispatch_modes) return fail("torch-dispatch modes changed");
  if (now.recorded != recorded) return fail("torch.jit.trace began or ended");
  if (now.transformed != transformed) return fail("a transform of torch.func began or ended");
  if (now.dual != dual) return fail("a level of forward-mode derivatives began or ended");
  if (saves_tensors && now.saved_hooks != saved_hooks) return fail("hooks on saved tensors changed");
  if (now.autocast != autocast) return fail("autocast changed");
  if (now.no_autograd != no_autograd) return fail("the dispatcher's autograd was left out or taken in");
  if (now.overrides != overrides) return fail("__torch_function__ was switched on or off");
  if (now.modes != modes) return fail("torch-function modes changed");
  if (now.deterministic != deterministic) return fail("deterministic algorithms changed");
  if (now.default_dtype.get() != default_dtype.get()) return fail("the default dtype changed");
  if (errstate && !api.numpy->same_errstate(now.errstate.get(), errstate.get())) {
    return fail("np.errstate changed");
  }
  return true;
}

}  // namespace tatara::capture
