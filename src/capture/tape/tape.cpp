#include "capture/tape/tape.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "capture/host/numpy_api.h"
#include "capture/host/object_kinds.h"
#include "capture/host/package.h"
#include "capture/tape/tape_print.h"
#include "capture/tape/transaction.h"
#include "support/log.h"
#include "support/made_once.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

struct SlotObject {
  PyObject_HEAD int slot;
};

PyObject* slot_repr(PyObject* self) { return PyUnicode_FromFormat("%%%d", reinterpret_cast<SlotObject*>(self)->slot); }

PyTypeObject* slot_type() {
  return made_once([] {
    static PyType_Slot slots[] = {{Py_tp_repr, reinterpret_cast<void*>(slot_repr)}, {0, nullptr}};
    static PyType_Spec spec = {"tatara._core.Slot", sizeof(SlotObject), 0, Py_TPFLAGS_DEFAULT, slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  });
}

/// The tensors of a call's result, in order.
void flatten_result(PyObject* result, std::vector<PyObject*>& out) {
  if (PyTuple_Check(result) || PyList_Check(result)) {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(result);
    for (Py_ssize_t i = 0; i < n; ++i) flatten_result(PySequence_Fast_GET_ITEM(result, i), out);
  } else {
    out.push_back(result);
  }
}

Ref call_node(const TapeNode& node, const std::vector<Ref>& env, std::span<const int64_t> symbols) {
  if (!node.func && node.custom) {
    PyErr_SetString(PyExc_RuntimeError, "tatara: an autograd.Function cannot run apart from its program");
    return {};
  }
  if (!node.func) return Ref::borrow(Py_None);  // the end of a region
  const auto fill = [&env, symbols](PyObject* object) {
    if (is_size_ref(object)) return size_ref_value(object, symbols);
    const int slot = slot_of(object);
    return slot < 0 ? Ref::borrow(object) : env[static_cast<size_t>(slot)];
  };
  const Ref args = map_structure(node.args.get(), fill);
  if (!args) return {};
  Ref kwargs;
  if (node.kwargs) {
    kwargs = map_structure(node.kwargs.get(), fill);
    if (!kwargs) return {};
  }
  if (node.errstate) return NumpyApi::get()->call_with(node.errstate.get(), node.func.get(), args.get(), kwargs.get());
  return Ref::steal(PyObject_Call(node.func.get(), args.get(), kwargs.get()));
}

TapeSlot describe(TapeSlot slot) {
  slot.dtype = attr_or_null(slot.meta.get(), "dtype");
  slot.sizes = attr_or_null(slot.meta.get(), "shape");
  slot.strides = Ref::steal(PyObject_CallMethod(slot.meta.get(), "stride", nullptr));
  if (!slot.strides) forget_error();
  return slot;
}

/// Puts the thread into the grad modes that nodes were recorded in, and back.
class GradModes {
 public:
  explicit GradModes(bool active) : active_(active) {
    if (active_) first_ = now_ = TorchApi::get()->grad_enabled();
  }
  ~GradModes() {
    if (active_ && now_ != first_) set(first_);
  }
  GradModes(const GradModes&) = delete;
  GradModes& operator=(const GradModes&) = delete;
  void want(const TapeNode& node) {
    if (active_ && node.mode != now_) set(node.mode);
  }

 private:
  void set(bool on) {
    now_ = on;
    TorchApi::get()->set_grad(on);
  }
  bool active_, first_ = false, now_ = false;
};

/// The levels that a run of nodes has entered and not left. Those of a run that fails are left again.
class OpenLevels {
 public:
  explicit OpenLevels(const std::vector<TapeNode>& nodes) : nodes_(nodes) {}
  ~OpenLevels() {
    const ErrorAside aside;
    while (!kept_ && !open_.empty()) leave();
  }
  OpenLevels(const OpenLevels&) = delete;
  OpenLevels& operator=(const OpenLevels&) = delete;

  void done(size_t node) {
    if (nodes_[node].step == FuncStep::kEnter) open_.push_back(node);
    if (nodes_[node].step == FuncStep::kExit) open_.pop_back();
  }
  /// Leaves these levels, and enters those that are open after all nodes.
  void go_to_end(std::span<const int64_t> symbols) {
    const ErrorAside aside;
    while (!open_.empty()) leave();
    for (size_t n = 0; n < nodes_.size(); ++n) done(n);
    for (const size_t n : open_) {
      if (!call_node(nodes_[n], {}, symbols)) forget_error();
    }
    keep();
  }
  /// They stay open: the program goes on inside of them.
  void keep() {
    kept_ = true;
    Transaction* const transaction = Transaction::current();
    for (size_t i = 0; i < open_.size() && transaction != nullptr; ++i) {
      transaction->on_undo([name = nodes_[open_[i]].name] { return leave_level(name); });
    }
  }

 private:
  static bool leave_level(const std::string& name) {
    const Ref text = Ref::steal(PyUnicode_FromString(name.c_str()));
    return text && call_package<PackageFunction::kLeaveLevel>(text.get());
  }
  void leave() {
    if (!leave_level(nodes_[open_.back()].name)) forget_error();
    open_.pop_back();
  }

  const std::vector<TapeNode>& nodes_;
  std::vector<size_t> open_;
  bool kept_ = false;
};

/// After a failure between both ends of regions: torch's hooks on saved tensors go off again. Where a region has no end on the
/// tape the program itself is inside, and leaves it.
void abandon_regions(const std::vector<TapeNode>& nodes, size_t done) {
  std::vector<size_t> open;
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (nodes[n].region == RegionMark::kBegin) open.push_back(n);
    if (nodes[n].region != RegionMark::kEnd || open.empty()) continue;
    if (open.back() < done && n >= done) {
      const ErrorAside aside;
      const Ref state = Ref::borrow(PyTuple_GET_ITEM(nodes[n].args.get(), 0));
      if (!Ref::steal(PyObject_CallMethod(state.get(), "abandon", nullptr))) forget_error();
    }
    open.pop_back();
  }
}

}  // namespace

Ref make_slot_ref(int slot) {
  auto* object = PyObject_New(SlotObject, slot_type());
  object->slot = slot;
  return Ref::steal(reinterpret_cast<PyObject*>(object));
}

int slot_of(PyObject* object) {
  return Py_TYPE(object) == slot_type() ? reinterpret_cast<SlotObject*>(object)->slot : -1;
}

int Tape::add_input(PyObject* tensor, Ref meta, Ref device, int guard_index) {
  const int index = static_cast<int>(slots_.size());
  by_object_[tensor] = index;
  by_meta_[meta.get()] = index;
  TapeSlot slot;
  slot.object = Ref::borrow(tensor);
  slot.meta = std::move(meta);
  slot.device = std::move(device);
  slot.input = true;
  slot.guard_index = guard_index;
  const Ref needs = attr_or_null(tensor, "requires_grad");
  slot.requires_grad = needs.get() == Py_True;
  needs_grad_modes_ = needs_grad_modes_ || slot.requires_grad;
  slots_.push_back(describe(std::move(slot)));
  TATARA_LOG(kCapture, "  ", input_text(*this, index));
  return index;
}

int Tape::add_placeholder(PyObject* tensor, Ref device) {
  const int index = static_cast<int>(slots_.size());
  by_object_[tensor] = index;
  by_meta_[tensor] = index;
  TapeSlot slot;
  slot.object = Ref::borrow(tensor);
  slot.meta = Ref::borrow(tensor);
  slot.device = std::move(device);
  slots_.push_back(describe(std::move(slot)));
  return index;
}

void Tape::add_node(TapeNode node) {
  if (node.step != FuncStep::kNone) needs_grad_modes_ = has_transforms_ = true;
  if (node.leaf) needs_grad_modes_ = true;
  node.mode = node.mode || node.grad;
  if (!node.mutates) {
    for (const int slot : node.outputs) makers_.try_emplace(slot, nodes_.size());
  }
  nodes_.push_back(std::move(node));
  TATARA_LOG(kCapture, "  ", node_text(*this, nodes_.back()));
}

void Tape::take_layouts(const Tape& open) {
  for (const int output : outputs_) {
    TapeSlot& slot = slots_[static_cast<size_t>(output)];
    const Ref object = open.slots()[static_cast<size_t>(output)].object;
    if (slot.input || slot.number || !slot.symbolic_sizes.empty() || !object) continue;
    Ref strides = Ref::steal(PyObject_CallMethod(object.get(), "stride", nullptr));
    if (strides && PyTuple_Check(strides.get())) slot.strides = std::move(strides);
    forget_error();
  }
}

std::vector<TapeNode> Tape::cut_nodes(size_t first) {
  const auto begin = nodes_.begin() + static_cast<std::ptrdiff_t>(first);
  std::vector<TapeNode> cut(std::make_move_iterator(begin), std::make_move_iterator(nodes_.end()));
  nodes_.erase(begin, nodes_.end());
  std::erase_if(makers_, [first](const auto& item) { return item.second >= first; });
  return cut;
}

void Tape::set_last_keyword(const char* name, long value) {
  TapeNode& node = nodes_.back();
  node.kwargs = Ref::steal(PyDict_New());
  PyDict_SetItemString(node.kwargs.get(), name, Ref::steal(PyLong_FromLong(value)).get());
}

int Tape::add_value(TapeSlot slot) {
  const int index = static_cast<int>(slots_.size());
  by_object_[slot.object.get()] = index;
  slots_.push_back(std::move(slot));
  return index;
}

void Tape::add_number(PyObject* value, int guard_index, Expr symbol) {
  TapeSlot slot;
  slot.object = slot.meta = Ref::borrow(value);
  slot.input = slot.number = true;
  slot.guard_index = guard_index;
  slot.symbolic_sizes = {symbol};
  slots_.push_back(std::move(slot));
}

int Tape::add_float(PyObject* value, int guard_index, std::pair<Expr, Expr> bits) {
  TapeSlot slot;
  slot.object = slot.meta = Ref::borrow(value);
  slot.input = slot.number = true;
  slot.guard_index = guard_index;
  slot.bits = {bits.first, bits.second};
  slots_.push_back(std::move(slot));
  return static_cast<int>(slots_.size()) - 1;
}

int Tape::add_derived(PyObject* value) {
  TapeSlot slot;
  slot.object = slot.meta = Ref::borrow(value);
  slot.number = slot.derived = true;
  slot.whole = !PyFloat_CheckExact(value);
  slots_.push_back(std::move(slot));
  return static_cast<int>(slots_.size()) - 1;
}

void Tape::set_layout(int slot, std::vector<Expr> sizes, std::vector<Expr> strides) {
  TapeSlot& info = slots_[static_cast<size_t>(slot)];
  const auto constant = [](Expr e) { return e.is_const(); };
  if (std::all_of(sizes.begin(), sizes.end(), constant) && std::all_of(strides.begin(), strides.end(), constant))
    return;
  info.symbolic_sizes = std::move(sizes);
  info.symbolic_strides = std::move(strides);
}

namespace {

Ref view_of(TorchApi& api, PyObject* tensor) {
  return Ref::steal(PyObject_CallFunctionObjArgs(api.functions.view_as.get(), tensor, tensor, nullptr));
}

/// Makes the placeholder the real tensor.
bool swap(TorchApi& api, PyObject* placeholder, PyObject* value) {
  return static_cast<bool>(
      Ref::steal(PyObject_CallFunctionObjArgs(api.functions.swap_impl.get(), placeholder, value, nullptr)));
}

/// Another tensor with the result's memory. A view made inside of a level would belong to it, so a tensor that leaves one gets
/// its view before.
Ref alias_of(TorchApi& api, const TapeNode& node, const std::vector<Ref>& env, PyObject* result,
             std::span<const int64_t> symbols) {
  if (node.step != FuncStep::kUnwrap) return view_of(api, result);
  const auto inside = static_cast<size_t>(slot_of(PyTuple_GET_ITEM(node.args.get(), 0)));
  std::vector<Ref> changed = env;
  changed[inside] = view_of(api, env[inside].get());
  return changed[inside] ? Tape::call_object(node, changed, symbols) : Ref();
}

}  // namespace

void Tape::note_writes(const TapeNode& node, const std::vector<Ref>& env) const {
  Transaction* const transaction = Transaction::current();
  if (transaction != nullptr) transaction->keep_operands(node, env, *TorchApi::get());
}

namespace {

/// Whether tensors of the same sizes lie in memory alike.
bool same_strides(PyObject* a, PyObject* b) {
  const auto part = [](PyObject* tensor, const char* name) {
    Ref made = Ref::steal(PyObject_CallMethod(tensor, name, nullptr));
    if (!made) forget_error();
    return made;
  };
  const Ref sizes = part(a, "size"), ours = part(a, "stride"), theirs = part(b, "stride"), count = part(a, "numel");
  if (!sizes || !ours || !theirs || !count || PyObject_IsTrue(count.get()) == 0) return true;
  for (Py_ssize_t d = 0; d < PyTuple_GET_SIZE(sizes.get()); ++d) {
    if (PyLong_AsLongLong(PyTuple_GET_ITEM(sizes.get(), d)) == 1) continue;
    const auto at = [d](const Ref& strides) { return PyLong_AsLongLong(PyTuple_GET_ITEM(strides.get(), d)); };
    if (at(ours) != at(theirs)) return false;
  }
  return true;
}

}  // namespace

/// In what a result is other than was inferred; empty: in nothing. How it lies in memory counts where the program has asked for
/// it; what else follows from it is looked at elsewhere.
std::string Tape::differs(const TapeNode& node, size_t output, PyObject* value, const std::vector<Ref>& env, bool real,
                          const TorchApi& api) const {
  const auto slot = static_cast<size_t>(node.outputs[output]);
  if (!api.is_tensor(value)) return real ? "" : "gives a tensor where its kernel gives none";
  if (node.level != 0 || slots_[slot].level != 0 || slots_[slot].number) return {};
  if (real) {
    const auto earlier = node.outputs.begin() + static_cast<std::ptrdiff_t>(output);
    const bool operand = !node.mutates && std::find(node.outputs.begin(), earlier, node.outputs[output]) == earlier;
    return operand && value != env[slot].get() ? "gives its operand where its kernel gives a tensor of its own" : "";
  }
  if (api.numpy != nullptr && api.numpy->is_array(value)) return {};
  for (const char* name : {"dtype", "shape"}) {
    const Ref inferred = attr_or_null(env[slot].get(), name), given = attr_or_null(value, name);
    if (!inferred || !given || PyObject_RichCompareBool(inferred.get(), given.get(), Py_EQ) != 1) {
      return str_cat("gives a tensor of another ", name, " than its kernel");
    }
  }
  if (slots_[slot].layout_read && !same_strides(env[slot].get(), value)) {
    return "gives a tensor of other strides than its kernel";
  }
  return {};
}

bool Tape::materialise(TorchApi& api, const std::function<bool()>& stop) {
  const std::span<const int64_t> symbols = open_hints();
  std::vector<Ref> env(slots_.size());
  for (size_t i = 0; i < slots_.size(); ++i) env[i] = slots_[i].object;
  std::vector<bool> real(slots_.size());
  for (size_t i = 0; i < slots_.size(); ++i) real[i] = slots_[i].input;
  // All are alive until the end: slots keep what the run replaces.
  std::unordered_set<PyObject*> present;
  for (const Ref& object : env) present.insert(object.get());
  mismatch_.clear();
  if (Transaction* const transaction = Transaction::current()) transaction->begin_tape(*this, env, api);
  GradModes modes(needs_grad_modes_);
  OpenLevels levels(nodes_);
  const auto failed = [&] {
    levels.go_to_end(symbols);
    abandon_regions(nodes_, nodes_done_);
    return false;
  };
  for (nodes_done_ = 0; nodes_done_ < nodes_.size(); ++nodes_done_) {
    const TapeNode& node = nodes_[nodes_done_];
    if (node.done) continue;
    if (stop()) {
      PyErr_SetString(PyExc_RuntimeError, "stopped");
      return failed();
    }
    modes.want(node);
    note_writes(node, env);
    const Ref result = call_node(node, env, symbols);
    if (!result) return failed();
    levels.done(nodes_done_);
    if (node.region != RegionMark::kNone) continue;
    if (node.number) {
      env[static_cast<size_t>(node.outputs[0])] = result;
      present.insert(result.get());
      continue;
    }
    std::vector<PyObject*> tensors;
    flatten_result(result.get(), tensors);
    for (size_t k = 0; k < node.outputs.size() && k < tensors.size(); ++k) {
      const auto slot = static_cast<size_t>(node.outputs[k]);
      if (node.outputs[k] < 0) continue;
      if (const std::string other = differs(node, k, tensors[k], env, real[slot], api); !other.empty()) {
        mismatch_ = str_cat("the host's meta kernel of ", node.name, " ", other);
        PyErr_SetString(PyExc_RuntimeError, mismatch_.c_str());
        return failed();
      }
      if (real[slot]) continue;
      Ref value = Ref::borrow(tensors[k]);
      // The host returned an operand where the placeholder is an object of its own.
      if (present.contains(value.get())) {
        value = alias_of(api, node, env, value.get(), symbols);
        if (!value) return failed();
      }
      if (!swap(api, env[slot].get(), value.get())) return failed();
      real[slot] = true;
    }
  }
  levels.keep();
  return true;
}

bool Tape::take_results(const std::vector<int>& outputs, const std::vector<Ref>& env, TorchApi& api) const {
  std::unordered_set<PyObject*> taken;
  for (const TapeSlot& slot : slots_) {
    if (slot.input) taken.insert(slot.object.get());
  }
  for (const int output : outputs) {
    const TapeSlot& slot = slots_[static_cast<size_t>(output)];
    if (slot.input || slot.number) continue;
    Ref value = env[static_cast<size_t>(output)];
    if (!taken.insert(value.get()).second) value = view_of(api, value.get());
    if (!value || !swap(api, slot.object.get(), value.get())) return false;
  }
  return true;
}

Ref Tape::call_object(const TapeNode& node, const std::vector<Ref>& env, std::span<const int64_t> symbols) {
  return call_node(node, env, symbols);
}

bool Tape::call(const TapeNode& node, const std::vector<Ref>& env, std::span<const int64_t> symbols,
                std::vector<Ref>& results) {
  const Ref result = call_node(node, env, symbols);
  if (!result) return false;
  std::vector<PyObject*> tensors;
  flatten_result(result.get(), tensors);
  results.clear();
  for (PyObject* tensor : tensors) results.push_back(Ref::borrow(tensor));
  return true;
}

Tape::SymbolPlace Tape::place_of(Expr symbol) const {
  for (size_t s = 0; s < slots_.size(); ++s) {
    if (!slots_[s].input) continue;
    for (const bool stride : {false, true}) {
      const std::vector<Expr>& list = stride ? slots_[s].symbolic_strides : slots_[s].symbolic_sizes;
      const auto found = std::find(list.begin(), list.end(), symbol);
      if (found != list.end()) return {static_cast<int>(s), static_cast<int>(found - list.begin()), stride};
    }
  }
  return {};
}

std::shared_ptr<Tape> Tape::detach(size_t count, size_t facts) const {
  auto copy = std::make_shared<Tape>();
  copy->slots_ = slots_;
  copy->makers_ = makers_;
  copy->has_transforms_ = has_transforms_;
  copy->nodes_.assign(nodes_.begin(), nodes_.begin() + static_cast<std::ptrdiff_t>(count));
  copy->needs_grad_modes_ =
      has_transforms_ ||
      std::any_of(slots_.begin(), slots_.end(), [](const TapeSlot& s) { return s.input && s.requires_grad; }) ||
      std::any_of(copy->nodes_.begin(), copy->nodes_.end(), [](const TapeNode& n) { return n.leaf; });
  for (TapeNode& node : copy->nodes_) {
    if (node.custom) {
      // The class and the context of this call; arguments and results are slots.
      PyObject* args = node.args.get();
      node.func = Ref();
      node.args = Ref::steal(PyTuple_Pack(4, Py_None, Py_None, PyTuple_GET_ITEM(args, 2), PyTuple_GET_ITEM(args, 3)));
    }
    // What the marks refer to holds tensors of this call.
    if (node.region == RegionMark::kNone) continue;
    node.func = Ref();
    node.args = TorchApi::get()->empty_tuple;
  }
  for (TapeSlot& slot : copy->slots_) {
    // Inputs from the arguments come anew with each call; pinned ones are kept.
    if (!slot.input || slot.guard_index >= 0) slot.object = Ref();
    if (!slot.input) slot.meta = Ref();
  }
  for (size_t i = 0; i < copy->slots_.size(); ++i) {
    const TapeSlot& slot = copy->slots_[i];
    if (slot.input) copy->fills_.push_back({static_cast<int>(i), slot.guard_index, slot.object.get()});
  }
  if (open_symbols_ != nullptr && !open_symbols_->empty()) {
    copy->ctx_ = open_symbols_->ctx_ptr();
    copy->symbols_ = open_symbols_->symbols();
    copy->hints_ = open_symbols_->hints();
    copy->ranges_ = open_symbols_->ranges();
    const std::vector<Expr>& guards = copy->ctx_->guards();
    copy->facts_.assign(guards.begin(), guards.begin() + static_cast<std::ptrdiff_t>(std::min(facts, guards.size())));
    for (const Expr symbol : copy->symbols_) copy->places_.push_back(copy->place_of(symbol));
  }
  copy->collect_checks();
  return copy;
}

void Tape::collect_checks() {
  std::vector<bool> wanted(slots_.size(), false);
  for (size_t n = nodes_.size(); n-- > 0;) {
    const TapeNode& node = nodes_[n];
    if (!node.number || (!node.check && !wanted[static_cast<size_t>(node.outputs[0])])) continue;
    check_nodes_.push_back(n);
    for_each_slot(node.args.get(), [&](int slot) { wanted[static_cast<size_t>(slot)] = true; });
  }
  std::reverse(check_nodes_.begin(), check_nodes_.end());
  for (size_t i = 0; i < slots_.size(); ++i) {
    const TapeSlot& slot = slots_[i];
    if (!wanted[i] || slot.bits.empty()) continue;
    check_floats_.push_back(
        {static_cast<int>(i), ExprProgram(slot.bits[0], symbols_), ExprProgram(slot.bits[1], symbols_)});
  }
}

bool Tape::checks_hold(std::span<const int64_t> symbols, std::string* why) const {
  if (check_nodes_.empty()) return true;
  std::vector<Ref> env(slots_.size());
  for (const FloatPlace& place : check_floats_) {
    const std::optional<int64_t> high = place.high.try_evaluate(symbols), low = place.low.try_evaluate(symbols);
    if (!high || !low) return false;
    const uint64_t bits = static_cast<uint64_t>(*high) << 32 | static_cast<uint64_t>(*low);
    double value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    env[static_cast<size_t>(place.slot)] = Ref::steal(PyFloat_FromDouble(value));
  }
  for (const size_t n : check_nodes_) {
    const TapeNode& node = nodes_[n];
    Ref value = call_node(node, env, symbols);
    if (!value) forget_error();
    if (value && (!node.check || same_value(value.get(), node.check.get()))) {
      env[static_cast<size_t>(node.outputs[0])] = std::move(value);
      continue;
    }
    if (why != nullptr)
      *why = str_cat("a number that the program decides by came out otherwise (", node.file, ":", node.line, ")");
    return false;
  }
  return true;
}

void Tape::set_outputs(std::vector<int> outputs) {
  outputs_ = std::move(outputs);
  const std::vector<int> last = last_uses();
  dead_after_.assign(nodes_.size(), {});
  for (size_t s = 0; s < last.size(); ++s) {
    if (last[s] >= 0 && !slots_[s].number) dead_after_[static_cast<size_t>(last[s])].push_back(static_cast<int>(s));
  }
}

std::vector<int> Tape::last_uses() const {
  std::vector<int> last(slots_.size(), -1);
  for (size_t n = 0; n < nodes_.size(); ++n) {
    const auto use = [&](int slot) { last[static_cast<size_t>(slot)] = static_cast<int>(n); };
    for_each_slot(nodes_[n].args.get(), use);
    for_each_slot(nodes_[n].kwargs.get(), use);
    for (const int slot : nodes_[n].outputs) {
      if (slot >= 0) use(slot);
    }
  }
  for (const int slot : outputs_) last[static_cast<size_t>(slot)] = -1;
  return last;
}

bool Tape::symbol_values(const std::vector<Ref>& env, TorchApi& api, std::vector<int64_t>& symbols) const {
  TensorMeta meta;
  for (const SymbolPlace& place : places_) {
    symbols.push_back(0);
    if (place.slot < 0) continue;
    if (slots_[static_cast<size_t>(place.slot)].number) {
      symbols.back() = PyLong_AsLongLong(env[static_cast<size_t>(place.slot)].get());
      continue;
    }
    if (!api.read_meta(env[static_cast<size_t>(place.slot)].get(), meta)) {
      PyErr_SetString(PyExc_RuntimeError, "an input tensor cannot be imported");
      return false;
    }
    symbols.back() = (place.stride ? meta.strides : meta.sizes).at(static_cast<size_t>(place.dim));
  }
  return true;
}

bool Tape::run(std::vector<Ref>& env, TorchApi& api) const {
  if (Transaction* const transaction = Transaction::current()) transaction->begin_tape(*this, env, api);
  std::vector<int64_t> symbols;
  return symbol_values(env, api, symbols) && run_nodes(env, 0, nodes_.size(), symbols);
}

void Tape::drop_dead(std::vector<Ref>& env, size_t first, size_t last) const {
  for (size_t n = first; n < last; ++n) {
    for (const int slot : dead_after_[n]) env[static_cast<size_t>(slot)] = Ref();
  }
}

bool Tape::run_nodes(std::vector<Ref>& env, size_t first, size_t last, std::span<const int64_t> symbols,
                     bool keep) const {
  GradModes modes(needs_grad_modes_);
  OpenLevels levels(nodes_);
  for (size_t n = first; n < last; ++n) {
    const TapeNode& node = nodes_[n];
    modes.want(node);
    note_writes(node, env);
    const Ref result = call_node(node, env, symbols);
    if (!result) return false;
    levels.done(n);
    if (!node.sequence) {
      if (!node.outputs.empty() && node.outputs[0] >= 0) env[static_cast<size_t>(node.outputs[0])] = result;
    } else {
      std::vector<PyObject*> tensors;
      flatten_result(result.get(), tensors);
      for (size_t k = 0; k < node.outputs.size() && k < tensors.size(); ++k) {
        if (node.outputs[k] >= 0) env[static_cast<size_t>(node.outputs[k])] = Ref::borrow(tensors[k]);
      }
    }
    if (keep) continue;
    for (const int slot : dead_after_[n]) env[static_cast<size_t>(slot)] = Ref();
  }
  return true;
}

void Tape::fill_inputs(const std::vector<PyObject*>& objects, std::vector<Ref>& env) const {
  env.resize(slots_.size());
  for (const Fill& fill : fills_) {
    PyObject* value = fill.guard_index >= 0 ? objects[static_cast<size_t>(fill.guard_index)] : fill.object;
    env[static_cast<size_t>(fill.slot)] = Ref::borrow(value);
  }
}

std::vector<int> computed_outputs(const Tape& tape) {
  std::vector<int> result;
  std::vector<bool> seen(tape.slots().size());
  for (const int slot : tape.outputs()) {
    const auto at = static_cast<size_t>(slot);
    if (tape.slots()[at].input || seen[at]) continue;
    seen[at] = true;
    result.push_back(slot);
  }
  return result;
}

std::vector<int> input_slots(const Tape& tape) {
  std::vector<int> result;
  for (size_t i = 0; i < tape.slots().size(); ++i) {
    if (tape.slots()[i].input) result.push_back(static_cast<int>(i));
  }
  return result;
}

}  // namespace tatara::capture
