// Sizes and numbers that data decide, while a trace is open. A call whose result has such a size is recorded as it stands; the size
// is a symbol, whose value in this call comes from running the calls before it once more, beside the trace. Indexing by masks
// becomes indexing by the places where the mask holds, so that nonzero() alone decides a size and the rest is compiled.
#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "capture/host/known_calls.h"
#include "capture/tape/node_operators.h"
#include "capture/tape/transaction.h"
#include "capture/tape/view_origins.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/value_tracing.h"

namespace tatara::capture {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 40, kMostNumber = int64_t{1} << 62;
constexpr Py_ssize_t kMostNumbers = 64;  // of one tolist()

DType dtype_in(PyObject* tensor) { return dtype_of(attr_or_null(tensor, "dtype").get()); }

bool is_mask(const TorchApi& api, PyObject* o) { return api.is_plain_tensor(o) && dtype_in(o) == DType::kBool; }

/// A method in C of tensors: its first operand is what it is called on.
bool is_method_of_tensors(PyObject* func) {
  return Py_TYPE(func) == &PyMethodDescr_Type || Py_TYPE(func) == &PyWrapperDescr_Type;
}

/// Without gradients, autocast and modes: calls for their values alone.
class ForValues {
 public:
  explicit ForValues(TorchApi& api) : api_(api), off_(api), grad_(api.grad_enabled()) { api_.set_grad(false); }
  ~ForValues() { api_.set_grad(grad_); }
  ForValues(const ForValues&) = delete;
  ForValues& operator=(const ForValues&) = delete;

 private:
  TorchApi& api_;
  AutocastOff off_;
  bool grad_;
};

}  // namespace

bool same_states(const TorchApi& api, PyObject* a, PyObject* b) {
  bool same = PyList_GET_SIZE(a) == PyList_GET_SIZE(b);
  for (Py_ssize_t i = 0; same && i < PyList_GET_SIZE(a); ++i) {
    PyObject* const one = PyTuple_GET_ITEM(PyList_GET_ITEM(a, i), 1);
    PyObject* const other = PyTuple_GET_ITEM(PyList_GET_ITEM(b, i), 1);
    same = Ref::steal(PyObject_CallMethod(api.torch.get(), "equal", "OO", one, other)).get() == Py_True;
  }
  return same;
}

// ---- Values of this call ---------------------------------------------------------------------------------------------

/// The operand as it stands in this call; null: not to be had.
Ref ValueTracing::present(PyObject* operand) {
  if (is_symbolic_int(operand)) {
    const Expr e = symbolic_expr(operand);
    return Ref::steal(PyLong_FromLongLong(e.context().evaluate_hint(e).value_or(0)));
  }
  if (!api_.is_tensor(operand)) return is_symbolic_number(operand) ? Ref() : Ref::borrow(operand);
  const int slot = api_.is_plain_tensor(operand) ? slot_for(operand) : -1;
  if (slot < 0) return {};
  return own_.env[static_cast<size_t>(slot)];
}

bool ValueTracing::may_ask() const {
  const Tape& tape = trace_->tape;
  // What data decide may fall otherwise in a later call, and what NumPy writes is not always taken back.
  const auto writes = [](const TapeNode& node) { return node.mutates && is_numpy_operation(node); };
  if (tape.seen().numpy && std::any_of(tape.nodes().begin(), tape.nodes().end(), writes)) return false;
  return !owner_.backend && !context_.dry_run && context_.ahead == nullptr && transforms().open() == 0 &&
         !tape.has_transforms() && !tape.has_regions() && !tape.has_custom_backwards() && !is_numpy_tape(tape);
}

/// What the call gives in this call of the compiled function. Null: not to be had.
Ref ValueTracing::call_now(PyObject* func, PyObject* args, PyObject* kwargs) {
  if (!may_ask()) return {};
  const Bypass bypass(bypass_);
  const ForValues scope(api_);
  const auto value = [this](PyObject* o) { return present(o); };
  std::vector<int> slots;
  const auto note = [&](PyObject* o) {
    if (api_.is_plain_tensor(o)) slots.push_back(slot_for(o));
    return Ref::borrow(o);
  };
  map_structure(args, note);
  if (kwargs != nullptr) map_structure(kwargs, note);
  std::erase_if(slots, [](int slot) { return slot < 0; });
  if (!advance(slots)) return {};
  const Ref values = map_structure(args, value);
  const Ref named = kwargs != nullptr ? map_structure(kwargs, value) : Ref();
  Ref result;
  if (values && (named || kwargs == nullptr)) result = Ref::steal(PyObject_Call(func, values.get(), named.get()));
  forget_error();
  return result;
}

Ref ValueTracing::number_now(PyObject* func, PyObject* tensor) {
  own_.most_copied = Transaction::kMostInTrace;
  return call_now(func, Ref::steal(PyTuple_Pack(1, tensor)).get(), nullptr);
}

Ref ValueTracing::on_tape(PyObject* operands) {
  Trace& t = *trace_;
  return map_structure(operands, [&](PyObject* o) -> Ref {
    if (is_symbolic_int(o)) return make_size_ref(symbolic_expr(o), t.symbols);
    return api_.is_tensor(o) ? make_slot_ref(slot_for(o)) : Ref::borrow(o);
  });
}

/// Puts a call onto the tape whose results, one for each of its outputs, are there already.
void ValueTracing::add_done(TapeNode node, const std::vector<PyObject*>& results) {
  Trace& t = *trace_;
  own_.env.resize(t.tape.slots().size());
  for (size_t i = 0; i < results.size(); ++i) {
    own_.env[static_cast<size_t>(node.outputs[i])] = Ref::borrow(results[i]);
  }
  node.location = user_location();
  transforms().note_modes(node);
  t.tape.add_node(std::move(node));
  t.symbols.note_guards();
  own_.done.resize(t.tape.nodes().size());
  own_.done.back() = true;
}

// ---- Sizes -------------------------------------------------------------------------------------------------------------

std::vector<Expr> strides_like(ExprContext& ctx, const std::vector<Expr>& sizes, const TensorMeta& now) {
  std::vector<Expr> rows = contiguous_strides(ctx, sizes);
  const auto fits = [&](const std::vector<Expr>& strides) {
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (now.sizes[d] > 1 && ctx.evaluate_hint(strides[d]) != now.strides[d]) return false;
    }
    return true;
  };
  if (sizes.size() != 2 || fits(rows)) return rows;
  std::vector<Expr> columns = {ctx.constant(1), sizes[0]};
  return fits(columns) ? columns : rows;
}

Ref ValueTracing::placeholder_like(PyObject* result, const TensorMeta& meta) const {
  const Ref shape = int_tuple(meta.sizes), strides = int_tuple(meta.strides);
  return api_.empty_meta(shape.get(), strides.get(), attr_or_null(result, "dtype").get());
}

/// Records a call as it stands, whose first result has as many rows as data decide (kDataDecide).
Ref ValueTracing::record_sized(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs) {
  constexpr size_t kMostResults = 3;
  Trace& t = *trace_;
  if (!known_torch(fn.name).is(kDataDecide) || PyTuple_GET_SIZE(args) == 0) return {};
  PyObject* const operand = PyTuple_GET_ITEM(args, 0);
  const Ref now = api_.is_plain_tensor(operand) ? call_now(func, args, kwargs) : Ref();
  if (!now) return {};
  const Bypass bypass(bypass_);
  TapeNode node;
  node.func = Ref::borrow(func);
  node.args = on_tape(args);
  node.kwargs = kwargs != nullptr && PyDict_GET_SIZE(kwargs) > 0 ? on_tape(kwargs) : Ref();
  node.name = fn.name;
  node.sequence = !api_.is_tensor(now.get());
  ExprContext& ctx = t.symbols.ctx();
  const int given = slot_for(operand);
  std::vector<Expr> counted;
  std::vector<TensorMeta> metas;
  std::vector<PyObject*> results;
  if (node.sequence && !PyTuple_Check(now.get()) && !PyList_Check(now.get())) return {};
  for (Py_ssize_t i = 0; i < (node.sequence ? PySequence_Fast_GET_SIZE(now.get()) : 1); ++i) {
    results.push_back(node.sequence ? PySequence_Fast_GET_ITEM(now.get(), i) : now.get());
    if (!api_.read_meta(results.back(), metas.emplace_back()) || results.size() > kMostResults) return {};
  }
  // Rows are the first dimension where the call is given its operand alone; others may be told a dimension.
  const bool alone = PyTuple_GET_SIZE(args) == 1 && !node.kwargs;
  if (metas.empty() || metas[0].sizes.empty() || (metas[0].sizes.size() > 1 && !(alone && results.size() == 1)))
    return {};
  Ref made = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(results.size())));
  for (size_t i = 0; i < results.size(); ++i) {
    const TensorMeta& meta = metas[i];
    std::vector<Expr> sizes;
    for (const int64_t size : meta.sizes) sizes.push_back(ctx.constant(size));
    const Ref placeholder = placeholder_like(results[i], meta);
    if (!placeholder) return {};
    const int slot = t.tape.add_placeholder(placeholder.get(), t.tape.slots()[static_cast<size_t>(given)].device);
    const std::vector<Expr>& own = t.tape.layout(given).symbolic_sizes;
    if (i == 0) {
      sizes[0] = t.symbols.add_made(meta.sizes[0], slot, 0, {0, kMostElements});
      counted = sizes;
    } else if (i == 1 && own.size() == sizes.size()) {  // empty where it was not asked for
      sizes = own;
    } else if (i == 2 && meta.sizes == metas[0].sizes) {
      sizes = counted;
    }
    t.tape.set_layout(slot, sizes, strides_like(ctx, sizes, meta));
    node.outputs.push_back(slot);
    PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), Py_NewRef(placeholder.get()));
  }
  transforms().note_modes(node);
  histories().note_silent_views(node);
  const bool sequence = node.sequence;
  add_done(std::move(node), results);
  return sequence ? made : Ref::borrow(PyTuple_GET_ITEM(made.get(), 0));
}

/// nonzero() as one tensor of places for each dimension; null: see decided_call().
Ref ValueTracing::indices_of(PyObject* mask) {
  static PyObject* const nonzero = attr(api_.torch.get(), "nonzero").release();
  static PyObject* const unbind = attr(api_.torch.get(), "unbind").release();
  const Ref operands = Ref::steal(PyTuple_Pack(1, mask));
  const Ref places = record_sized(api_.classify(nonzero), nonzero, operands.get(), nullptr);
  if (!places) return {};
  const Ref column = Ref::steal(PyLong_FromLong(1));
  const Ref split = Ref::steal(PyTuple_Pack(2, places.get(), column.get()));
  return Ref::steal(torch().torch_function(unbind, split.get(), nullptr));
}

/// Whether both dimensions have one size; a fact from then on.
bool ValueTracing::same_size(PyObject* a, Py_ssize_t dim, PyObject* b, Py_ssize_t other) {
  Trace& t = *trace_;
  ExprContext& ctx = t.symbols.ctx();
  const auto size_of = [&](PyObject* tensor, Py_ssize_t d) -> Expr {
    const int slot = slot_for(tensor);
    if (slot < 0) return {};
    const SlotLayout& info = t.tape.layout(slot);
    if (d < 0) d += PyTuple_GET_SIZE(info.sizes.get());
    if (d < 0 || d >= PyTuple_GET_SIZE(info.sizes.get())) return {};
    if (!info.symbolic_sizes.empty()) return info.symbolic_sizes[static_cast<size_t>(d)];
    return ctx.constant(PyLong_AsLongLong(PyTuple_GET_ITEM(info.sizes.get(), d)));
  };
  const Bypass bypass(bypass_);
  const Expr x = size_of(a, dim), y = size_of(b, other);
  const bool same = x.valid() && y.valid() && ctx.guard(ctx.eq(x, y));
  t.symbols.note_guards();
  return same;
}

/// The key with the places where masks hold in place of the masks; null: there are none, or see decided_call().
Ref ValueTracing::without_masks(PyObject* self, PyObject* key) {
  const Ref items = PyTuple_CheckExact(key) ? Ref::borrow(key) : Ref::steal(PyTuple_Pack(1, key));
  const auto rank_of = [](PyObject* tensor) { return PyLong_AsLong(attr_or_null(tensor, "ndim").get()); };
  const Py_ssize_t count = PyTuple_GET_SIZE(items.get());
  // The dimension of the operand that each item begins with is plain before an ellipsis only.
  Py_ssize_t dim = 0;
  std::vector<Ref> parts;
  bool found = false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PyTuple_GET_ITEM(items.get(), i);
    if (!is_mask(api_, item)) {
      if (item == Py_Ellipsis) dim = -1;
      if (PyBool_Check(item)) return {};
      if (item != Py_None && dim >= 0) ++dim;
      parts.push_back(Ref::borrow(item));
      continue;
    }
    const long rank = rank_of(item);
    if (rank < 1 || dim < 0) return {};
    for (long d = 0; d < rank; ++d) {
      if (!same_size(item, d, self, dim + d)) return {};
    }
    const Ref indices = indices_of(item);
    if (!indices || !PyTuple_Check(indices.get())) return {};
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(indices.get()); ++k) {
      parts.push_back(Ref::borrow(PyTuple_GET_ITEM(indices.get(), k)));
    }
    dim += rank;
    found = true;
  }
  forget_error();
  if (!found) return {};
  Ref made = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(parts.size())));
  for (size_t i = 0; i < parts.size(); ++i)
    PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), parts[i].release());
  return made;
}

/// Indexing by masks.
Ref ValueTracing::masked(const TorchFunction& fn, PyObject* func, PyObject* args) {
  if (known_torch(fn.name).is(kSelects)) {
    static PyObject* const broadcast = attr(api_.torch.get(), "broadcast_tensors").release();
    static PyObject* const item = attr(reinterpret_cast<PyObject*>(api_.tensor_type), "__getitem__").release();
    if (PyTuple_GET_SIZE(args) != 2) return {};
    // In eager's order, which its errors tell.
    const Ref turned = Ref::steal(PyTuple_Pack(2, PyTuple_GET_ITEM(args, 1), PyTuple_GET_ITEM(args, 0)));
    const Ref both = Ref::steal(torch().torch_function(broadcast, turned.get(), nullptr));
    if (!both || !tracing()) return {};
    const Ref pair = Ref::steal(PySequence_Tuple(both.get()));
    const Ref key = without_masks(PyTuple_GET_ITEM(pair.get(), 1), PyTuple_GET_ITEM(pair.get(), 0));
    if (!key) return {};
    const Ref operands = Ref::steal(PyTuple_Pack(2, PyTuple_GET_ITEM(pair.get(), 1), key.get()));
    return Ref::steal(torch().torch_function(item, operands.get(), nullptr));
  }
  const Ref key = without_masks(PyTuple_GET_ITEM(args, 0), PyTuple_GET_ITEM(args, 1));
  if (!key) return {};
  Ref changed = Ref::steal(PySequence_List(args));
  PyList_SetItem(changed.get(), 1, Py_NewRef(key.get()));
  const Ref operands = Ref::steal(PyList_AsTuple(changed.get()));
  return Ref::steal(torch().torch_function(func, operands.get(), nullptr));
}

Ref ValueTracing::decided_call(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs) {
  const Py_ssize_t count = PyTuple_GET_SIZE(args), named = kwargs != nullptr ? PyDict_GET_SIZE(kwargs) : 0;
  if (fn.dispatcher || count == 0) return {};
  const KnownTorch known = known_torch(fn.name);
  if (known.is(kTakesMasks)) return count > 1 && named == 0 ? masked(fn, func, args) : Ref();
  PyObject* const tuple = named == 1 ? PyDict_GetItemString(kwargs, "as_tuple") : nullptr;
  const bool told = tuple == Py_True;
  if (known.is(kGivesPlaces) && known.is(kDataDecide) && tuple == Py_False) kwargs = nullptr;  // as without it
  if (known.is(kGivesPlaces) && count == 1 && (told || (named == 0 && !known.is(kDataDecide)))) {
    PyObject* const condition = PyTuple_GET_ITEM(args, 0);
    const bool tensor = api_.is_plain_tensor(condition) && PyLong_AsLong(attr_or_null(condition, "ndim").get()) > 0;
    return tensor ? indices_of(condition) : Ref();
  }
  if (known.is(kRepeats) && count >= 2 && count + named <= 3 && api_.is_plain_tensor(PyTuple_GET_ITEM(args, 1))) {
    static PyObject* const select = attr(api_.torch.get(), "index_select").release();
    PyObject* dim = count == 3 ? PyTuple_GET_ITEM(args, 2) : named == 1 ? PyDict_GetItemString(kwargs, "dim") : nullptr;
    PyObject* const repeats = PyTuple_GET_ITEM(args, 1);
    if (named == 1 && dim == nullptr) return {};
    Ref self = Ref::borrow(PyTuple_GET_ITEM(args, 0)), place = Ref::borrow(dim != nullptr ? dim : Py_None);
    if (place.get() == Py_None) {  // all elements in a row
      static PyObject* const flatten = attr(api_.torch.get(), "flatten").release();
      const Ref alone = Ref::steal(PyTuple_Pack(1, self.get()));
      self = Ref::steal(torch().torch_function(flatten, alone.get(), nullptr));
      place = Ref::steal(PyLong_FromLong(0));
      if (!self || !tracing()) return {};
    }
    if (!PyLong_Check(place.get()) || PyLong_AsLong(attr_or_null(repeats, "ndim").get()) != 1) return {};
    if (!same_size(self.get(), PyLong_AsSsize_t(place.get()), repeats, 0)) return {};
    static PyObject* const interleave = attr(api_.torch.get(), "repeat_interleave").release();
    const Ref alone = Ref::steal(PyTuple_Pack(1, repeats));
    const Ref places = record_sized(fn, interleave, alone.get(), nullptr);
    if (!places) return {};
    const Ref operands = Ref::steal(PyTuple_Pack(3, self.get(), place.get(), places.get()));
    return Ref::steal(torch().torch_function(select, operands.get(), nullptr));
  }
  return record_sized(fn, func, args, kwargs);
}

// ---- Numbers -----------------------------------------------------------------------------------------------------------

/// A condition that a tensor is asked for: taken as it is in this call.
Ref ValueTracing::record_flag(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* value) {
  Trace& t = *trace_;
  TapeNode node;
  node.func = Ref::borrow(func);
  node.args = on_tape(args);
  node.name = fn.name;
  const int slot = t.tape.add_made_number(value);
  const Expr symbol = t.symbols.add_made(value == Py_True ? 1 : 0, slot, SymbolSource::kInt, {0, 1});
  t.tape.set_symbol(slot, symbol);
  node.outputs = {slot};
  add_done(std::move(node), {value});
  ExprContext& ctx = t.symbols.ctx();
  return Ref::borrow(t.symbols.decide(ctx.ne(symbol, ctx.constant(0))) ? Py_True : Py_False);
}

Ref ValueTracing::flag(PyObject* tensor, PyObject* value) {
  static PyObject* const ask = attr(reinterpret_cast<PyObject*>(api_.base_type), "__bool__").release();
  return record_flag(api_.classify(ask), ask, Ref::steal(PyTuple_Pack(1, tensor)).get(), value);
}

Ref ValueTracing::numbers_in(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs) {
  Trace& t = *trace_;
  const bool list = fn.name == "tolist";
  const bool asked = fn.name == "__bool__";
  if (!list && !asked && fn.name != "item") return {};
  if (PyTuple_GET_SIZE(args) != 1 || (kwargs != nullptr && PyDict_GET_SIZE(kwargs) > 0)) return {};
  PyObject* const operand = PyTuple_GET_ITEM(args, 0);
  if (!api_.is_plain_tensor(operand) || api_.is_numpy(operand)) return {};
  const DType dtype = dtype_in(operand);
  const bool flag = asked || (!list && dtype == DType::kBool);
  if (!flag && (is_floating(dtype) || is_complex(dtype) || dtype == DType::kBool)) return {};
  if (flag && !t.symbols.may_decide()) return {};
  {
    const Bypass bypass(bypass_);
    const Ref count = Ref::steal(PyObject_CallMethod(operand, "numel", nullptr));
    const Py_ssize_t elements = count ? PyLong_AsSsize_t(count.get()) : 0;
    forget_error();
    if (elements < 1 || elements > (list ? kMostNumbers : 1)) return {};
    const int slot = slot_for(operand);
    // How many numbers a list has is part of the trace.
    if (list && slot < 0) return {};
    const std::vector<Expr> sizes = list ? t.tape.layout(slot).symbolic_sizes : std::vector<Expr>();
    if (!sizes.empty() && !t.symbols.may_decide()) return {};
    for (const Expr e : sizes) t.symbols.specialize(e);
  }
  const Ref now = call_now(func, args, kwargs);
  if (!now) return {};
  const Bypass bypass(bypass_);
  if (flag) return PyBool_Check(now.get()) ? record_flag(fn, func, args, now.get()) : Ref();
  bool fine = true;
  map_structure(now.get(), [&fine](PyObject* o) {
    const int64_t value = PyLong_Check(o) ? PyLong_AsLongLong(o) : 0;
    fine = fine && PyLong_CheckExact(o) && value > -kMostNumber && value < kMostNumber;
    return Ref::borrow(o);
  });
  if (!fine) {
    forget_error();
    return {};
  }
  TapeNode node;
  node.func = Ref::borrow(func);
  node.args = on_tape(args);
  node.name = fn.name;
  node.sequence = PyList_Check(now.get());
  std::vector<PyObject*> values;
  Ref result = map_structure(now.get(), [&](PyObject* o) {
    const int slot = t.tape.add_made_number(o);
    const Expr symbol = t.symbols.add_made(PyLong_AsLongLong(o), slot, SymbolSource::kInt, {-kMostNumber, kMostNumber});
    t.tape.set_symbol(slot, symbol);
    node.outputs.push_back(slot);
    values.push_back(o);
    return t.symbols.make(symbol);
  });
  add_done(std::move(node), values);
  mark_lists(result.get());
  return result;
}

std::optional<Expr> ValueTracing::made_number(TapeNode& node, PyObject* value) {
  Trace& t = *trace_;
  int beyond = PyLong_CheckExact(value) ? 0 : 1;
  const int64_t number = beyond != 0 ? 0 : PyLong_AsLongLongAndOverflow(value, &beyond);
  if (beyond != 0 || number <= -kMostNumber || number >= kMostNumber) return {};
  const int slot = t.tape.add_made_number(value);
  const Expr symbol = t.symbols.add_made(number, slot, SymbolSource::kInt, {-kMostNumber, kMostNumber});
  t.tape.set_symbol(slot, symbol);
  node.outputs.push_back(slot);
  return symbol;
}

void ValueTracing::mark_lists(PyObject* list) {
  if (list == nullptr || !PyList_Check(list)) return;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) mark_lists(PyList_GET_ITEM(list, i));
  mark_born(list);
}

Ref ValueTracing::with_numbers(PyObject* func, PyObject* args, PyObject* kwargs) {
  static PyObject* const item = attr(reinterpret_cast<PyObject*>(api_.base_type), "item").release();
  const TorchFunction& fn = api_.classify(item);
  PyObject* const self = PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : nullptr;
  const bool method = is_method_of_tensors(func);
  bool found = false;
  TapeNode node;
  node.func = Ref::borrow(func);
  std::unordered_set<PyObject*> tensors;  // which the host takes as they are
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
    if (takes_tensor(node, static_cast<size_t>(i))) tensors.insert(PyTuple_GET_ITEM(args, i));
  }
  const auto number = [&](PyObject* o) -> Ref {
    if (!api_.is_plain_tensor(o) || (method && o == self) || tensors.contains(o)) return Ref::borrow(o);
    const DType dtype = dtype_in(o);
    if (PyLong_AsLong(attr_or_null(o, "ndim").get()) != 0) return Ref::borrow(o);
    // Some take integers of 64 bits alone (tensor_split): the host says so.
    if (is_integral(dtype) && dtype != DType::kInt64 && dtype != DType::kBool) return Ref::borrow(o);
    const Ref operand = Ref::steal(PyTuple_Pack(1, o));
    Ref value = Ref::steal(torch().answer_constant(item, operand.get(), nullptr));
    const bool whole = !is_floating(dtype) && !is_complex(dtype) && dtype != DType::kBool;
    if (!value && whole) value = numbers_in(fn, item, operand.get(), nullptr);
    found = found || value;
    return value ? value : Ref::borrow(o);
  };
  const Ref changed = map_structure(args, number);
  const Ref named = kwargs != nullptr ? map_structure(kwargs, number) : Ref();
  if (!found || !tracing()) return {};
  Ref result = Ref::steal(torch().torch_function(func, changed.get(), named.get()));
  // Where the parameter is a tensor's, a number is the error: the call as it stands says what it does.
  if (!result && PyErr_ExceptionMatches(PyExc_Exception) != 0) forget_error();
  return result;
}

}  // namespace tatara::capture
