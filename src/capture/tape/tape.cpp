#include "capture/tape/tape.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "capture/host/object_kinds.h"
#include "capture/tape/node_operators.h"
#include "capture/tape/tape_print.h"
#include "capture/tape/view_origins.h"
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

TapeSlot describe(TapeSlot slot) {
  slot.dtype = attr_or_null(slot.meta.get(), "dtype");
  slot.sizes = attr_or_null(slot.meta.get(), "shape");
  slot.strides = Ref::steal(PyObject_CallMethod(slot.meta.get(), "stride", nullptr));
  if (!slot.strides) forget_error();
  return slot;
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

int Tape::add_input(PyObject* tensor, Ref meta, Ref device, int guard_index, bool conjugate, Ref other) {
  const int index = static_cast<int>(slots_.size());
  by_object_[tensor] = index;
  by_meta_[meta.get()] = index;
  TapeSlot slot;
  slot.object = Ref::borrow(tensor);
  slot.meta = std::move(meta);
  slot.device = std::move(device);
  slot.input = true;
  slot.guard_index = guard_index;
  slot.conjugate = conjugate;
  slot.foreign = static_cast<bool>(other);
  slot.other = std::move(other);
  const Ref needs = attr_or_null(tensor, "requires_grad");
  slot.requires_grad = needs.get() == Py_True;
  needs_grad_modes_ = needs_grad_modes_ || slot.requires_grad;
  slots_.push_back(describe(std::move(slot)));
  TATARA_LOG(kCapture, "  ", input_text(*this, index));
  return index;
}

int Tape::add_placeholder(PyObject* tensor, Ref device, Ref meta, Ref other) {
  const int index = static_cast<int>(slots_.size());
  TapeSlot slot;
  slot.object = Ref::borrow(tensor);
  slot.foreign = static_cast<bool>(other);
  slot.other = std::move(other);
  slot.real = meta && !slot.foreign;
  slot.meta = meta ? std::move(meta) : Ref::borrow(tensor);
  by_object_[tensor] = index;
  by_meta_[slot.meta.get()] = index;
  slot.device = std::move(device);
  slots_.push_back(describe(std::move(slot)));
  return index;
}

bool is_on_foreign(const Tape& tape, const TapeNode& node) {
  bool found = false;
  const auto look = [&](int slot) { found = found || (slot >= 0 && tape.slots()[static_cast<size_t>(slot)].foreign); };
  for_each_slot(node.args.get(), look);
  for_each_slot(node.kwargs.get(), look);
  for (const int slot : node.outputs) look(slot);
  return found;
}

bool waits(const Tape& tape) {
  const std::vector<TapeNode>& nodes = tape.nodes();
  const size_t done = std::min(tape.nodes_done(), nodes.size());
  return std::any_of(nodes.begin() + static_cast<std::ptrdiff_t>(done), nodes.end(), [&tape](const TapeNode& node) {
    const bool made = number_operation(node) != nullptr && tape.numbers_made().contains(node.outputs[0]);
    return !is_numpy_operation(node) && !made;
  });
}

bool is_numpy_tape(const Tape& tape) {
  return !tape.nodes().empty() && std::all_of(tape.nodes().begin(), tape.nodes().end(), [](const TapeNode& node) {
    return is_numpy_operation(node) && !crosses_to_tensors(node);
  });
}

bool has_reentrant_regions(const Tape& tape) {
  return std::any_of(tape.nodes().begin(), tape.nodes().end(), [](const TapeNode& node) {
    const RegionMark* mark = region_mark(node);
    return mark != nullptr && mark->reentrant;
  });
}

bool is_mixed_tape(const Tape& tape) {
  return std::any_of(tape.nodes().begin(), tape.nodes().end(), is_of_numpy) && !is_numpy_tape(tape);
}

void Tape::add_node(TapeNode node) {
  const GradientPass* pass = gradient_pass(node);
  if (step_of(node) != FuncStep::kNone || (pass != nullptr && pass->of_level))
    needs_grad_modes_ = seen_.transforms = true;
  if (is_leaf_mark(node)) needs_grad_modes_ = seen_.leaf_marks = true;
  seen_.numpy = seen_.numpy || is_of_numpy(node);
  if (draws_by_numpy(node) && number_operation(node) != nullptr) {
    ran_.numbers[node.outputs[0]] = slots_[static_cast<size_t>(node.outputs[0])].object;
  }
  node.mode = node.mode || node.grad;
  if (!node.mutates) {
    for (const int slot : node.outputs) makers_.try_emplace(slot, nodes_.size());
  }
  note_reshaped(node);
  nodes_.push_back(std::move(node));
  TATARA_LOG(kCapture, "  ", node_text(*this, nodes_.back()));
}

namespace {

/// Strides of symbolic sizes: what the dimensions take that lie closer in memory in this call. As they were where these are others.
void lay_out_as_seen(TapeSlot& slot) {
  std::vector<int64_t> seen;
  for (size_t d = 0; d < slot.symbolic_sizes.size(); ++d) {
    seen.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(slot.strides.get(), static_cast<Py_ssize_t>(d))));
  }
  const auto fits = [&](Expr e, size_t d) { return e.context().evaluate_hint(e) == seen[d]; };
  std::vector<Expr> strides;
  for (size_t d = 0; d < seen.size(); ++d) {
    Expr stride = slot.symbolic_strides[d];
    if (!fits(stride, d)) {
      ExprContext& ctx = stride.context();
      stride = ctx.constant(1);
      for (size_t other = 0; other < seen.size(); ++other) {
        if (seen[other] < seen[d]) stride = ctx.mul(stride, slot.symbolic_sizes[other]);
      }
      if (!fits(stride, d)) return;
    }
    strides.push_back(stride);
  }
  slot.symbolic_strides = std::move(strides);
}

}  // namespace

void Tape::take_layout(int at, const Tape& open) {
  TapeSlot& slot = slots_[static_cast<size_t>(at)];
  if (reshaped_.contains(at)) return;  // the run has looked at how it was before
  const Ref object = open.slots()[static_cast<size_t>(at)].object;
  if (slot.input || slot.number || !object) return;
  Ref strides = open.slots()[static_cast<size_t>(at)].real_strides;
  if (!strides) strides = Ref::steal(PyObject_CallMethod(object.get(), "stride", nullptr));
  if (strides && PyTuple_Check(strides.get())) {
    slot.strides = std::move(strides);
    if (!slot.symbolic_sizes.empty()) lay_out_as_seen(slot);
  }
  forget_error();
}

/// Whether the registry says of this memory how it lies, and not the host.
static bool lies_by_rule(const Tape& tape, int slot) {
  const TapeNode* const maker = tape.maker(memory_owner(tape, slot));
  const auto rule = [](const OpDef& op) { return op.meta || op.decompose || op.choose; };
  return maker == nullptr || !is_operator_call(*maker) || any_operator(*maker, +rule);
}

void Tape::take_layouts(const Tape& open) {
  for (size_t i = 0; i < slots_.size() && i < open.slots().size(); ++i) {
    const int slot = static_cast<int>(i);
    if (open.slots()[i].real_strides && !slots_[i].input && !lies_by_rule(*this, slot)) take_layout(slot, open);
  }
  for (const int output : outputs_) {
    TapeSlot& slot = slots_[static_cast<size_t>(output)];
    const Ref& object = open.slots()[static_cast<size_t>(output)].object;
    if (!slot.input) slot.conjugate = !slot.number && object && TorchApi::get()->beneath(object.get());
    if (has_transforms()) take_layout(output, open);
  }
}

std::vector<TapeNode> Tape::cut_nodes(size_t first) {
  ran_.nodes = std::min(ran_.nodes, first);
  const auto begin = nodes_.begin() + static_cast<std::ptrdiff_t>(first);
  std::vector<TapeNode> cut(std::make_move_iterator(begin), std::make_move_iterator(nodes_.end()));
  nodes_.erase(begin, nodes_.end());
  std::erase_if(makers_, [first](const auto& item) { return item.second >= first; });
  reshaped_.clear();
  for (const TapeNode& node : nodes_) note_reshaped(node);
  return cut;
}

SlotLayout Tape::present_layout(int slot) const {
  TapeSlot as;
  as.meta = slots_[static_cast<size_t>(slot)].meta;
  return describe(std::move(as));
}

void Tape::set_last_keyword(const char* name, long value) {
  TapeNode& node = nodes_.back();
  node.kwargs = Ref::steal(PyDict_New());
  PyDict_SetItemString(node.kwargs.get(), name, Ref::steal(PyLong_FromLong(value)).get());
}

int Tape::add_value(TapeSlot slot) {
  const int index = static_cast<int>(slots_.size());
  if (slot.object) by_object_[slot.object.get()] = index;  // else no object of the program stands for it
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

int Tape::add_made_number(PyObject* value) {
  TapeSlot slot;
  slot.object = slot.meta = Ref::borrow(value);
  slot.number = slot.whole = true;
  slots_.push_back(std::move(slot));
  return static_cast<int>(slots_.size()) - 1;
}

bool Tape::fits_layout(int slot) const {
  const TapeSlot& info = slots_[static_cast<size_t>(slot)];
  if (info.number || !info.meta || !info.sizes) return true;
  const ErrorAside aside;
  const SlotLayout now = present_layout(slot), &before = layout(slot);
  const auto same = [](const Ref& a, const Ref& b) {
    return !a || !b || PyObject_RichCompareBool(a.get(), b.get(), Py_EQ) == 1;
  };
  const bool fits = same(now.sizes, before.sizes) && same(now.strides, before.strides);
  forget_error();
  return fits;
}

void Tape::set_layout(int slot, std::vector<Expr> sizes, std::vector<Expr> strides) {
  TapeSlot& info = slots_[static_cast<size_t>(slot)];
  const auto constant = [](Expr e) { return e.is_const(); };
  if (std::all_of(sizes.begin(), sizes.end(), constant) && std::all_of(strides.begin(), strides.end(), constant))
    return;
  info.symbolic_sizes = std::move(sizes);
  info.symbolic_strides = std::move(strides);
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
  copy->seen_ = seen_;
  copy->nodes_.assign(nodes_.begin(), nodes_.begin() + static_cast<std::ptrdiff_t>(count));
  copy->needs_grad_modes_ =
      seen_.transforms ||
      std::any_of(slots_.begin(), slots_.end(), [](const TapeSlot& s) { return s.input && s.requires_grad; }) ||
      std::any_of(copy->nodes_.begin(), copy->nodes_.end(), is_leaf_mark);
  for (const TapeNode& node : copy->nodes_) copy->note_reshaped(node);
  for (TapeNode& node : copy->nodes_) {
    if (auto* end = std::get_if<FunctionEnd>(&node.kind)) {
      node.func = Ref();
      end->cls = end->context = Ref();
    }
    // What the marks refer to holds tensors of this call.
    if (region_mark(node) == nullptr) continue;
    node.func = Ref();
    node.args = TorchApi::get()->empty_tuple;
  }
  for (TapeSlot& slot : copy->slots_) {
    // Inputs from the arguments come anew with each call; pinned ones are kept.
    if (!slot.input || slot.guard_index >= 0) slot.object = Ref();
    if (!slot.input || slot.foreign) slot.meta = Ref();
    slot.other = Ref();
  }
  for (size_t i = 0; i < copy->slots_.size(); ++i) {
    const TapeSlot& slot = copy->slots_[i];
    if (slot.input) copy->fills_.push_back({static_cast<int>(i), slot.guard_index, slot.object.get(), slot.conjugate});
  }
  if (open_symbols_ != nullptr && !open_symbols_->empty()) {
    copy->ctx_ = open_symbols_->ctx_ptr();
    copy->symbols_ = open_symbols_->symbols();
    copy->hints_ = open_symbols_->hints();
    copy->ranges_ = open_symbols_->ranges();
    const std::vector<Expr>& guards = copy->ctx_->guards();
    copy->facts_.assign(guards.begin(), guards.begin() + static_cast<std::ptrdiff_t>(std::min(facts, guards.size())));
    for (size_t i = 0; i < copy->symbols_.size(); ++i) {
      const SymbolSource& source = open_symbols_->sources()[i];
      copy->places_.push_back(source.slot < 0 ? copy->place_of(copy->symbols_[i])
                                              : SymbolPlace{source.slot, source.dim, false});
      const auto maker = source.slot < 0 ? makers_.end() : makers_.find(source.slot);
      if (maker != makers_.end() && maker->second < count) {
        const bool flag = source.dim == SymbolSource::kInt && copy->ranges_[i].lo == 0 && copy->ranges_[i].hi == 1;
        copy->made_.symbols.push_back(
            {i, source.slot, maker->second, flag && asks_where_graphs_look(*this, nodes_[maker->second])});
      }
    }
  }
  copy->collect_checks();
  if (open_symbols_ != nullptr) copy->collect_late_facts(*open_symbols_);
  return copy;
}

/// Whether one of the first nodes changes the shape of the tensor in the slot.
bool Tape::reshapes_before(int slot, size_t nodes) const {
  return reshaped_.contains(slot) &&
         std::any_of(nodes_.begin(), nodes_.begin() + static_cast<std::ptrdiff_t>(nodes), [slot](const TapeNode& node) {
           return std::any_of(node.reshaped.begin(), node.reshaped.end(),
                              [slot](const auto& r) { return r.first == slot; });
         });
}

std::shared_ptr<Tape> Tape::part(size_t first, size_t last, const std::vector<bool>& needs) const {
  auto part = std::make_shared<Tape>(*this);
  const auto at = [](size_t n) { return static_cast<std::ptrdiff_t>(n); };
  part->nodes_.assign(nodes_.begin() + at(first), nodes_.begin() + at(last));
  for (size_t n = 0; n < first; ++n) {
    for (const auto& [slot, layout] : nodes_[n].reshaped) {
      static_cast<SlotLayout&>(part->slots_[static_cast<size_t>(slot)]) = *layout;
    }
  }
  part->reshaped_.clear();
  for (const TapeNode& node : part->nodes_) part->note_reshaped(node);
  part->makers_.clear();
  part->check_floats_.clear();
  part->check_nodes_.clear();
  part->made_.facts.clear();
  // Facts of what is not there yet would have sizes that are there follow from it.
  std::erase_if(part->facts_, [&](Expr fact) {
    return std::any_of(made_.symbols.begin(), made_.symbols.end(), [&](const MadeSymbol& made) {
      return made.node >= first && fact.contains(symbols_[made.symbol]);
    });
  });
  part->fills_.clear();
  enum class Place : uint8_t { kElsewhere, kComesIn, kMade };
  std::vector<Place> places(slots_.size());
  for (size_t n = 0; n < part->nodes_.size(); ++n) {
    const TapeNode& node = part->nodes_[n];
    const auto read = [&places](int slot) {
      Place& place = places[static_cast<size_t>(slot)];
      if (place == Place::kElsewhere) place = Place::kComesIn;
    };
    for_each_slot(node.args.get(), read);
    for_each_slot(node.kwargs.get(), read);
    for (const int slot : node.outputs) {
      if (slot < 0) continue;
      if (places[static_cast<size_t>(slot)] == Place::kElsewhere) places[static_cast<size_t>(slot)] = Place::kMade;
      if (!node.mutates) part->makers_.try_emplace(slot, n);
    }
  }
  const auto has_step = [](const TapeNode& node) {
    const GradientPass* pass = gradient_pass(node);
    return step_of(node) != FuncStep::kNone || (pass != nullptr && pass->of_level);
  };
  part->seen_.transforms = std::any_of(part->nodes_.begin(), part->nodes_.end(), has_step);
  std::vector<bool> wanted(slots_.size());
  for (const int slot : outputs_) wanted[static_cast<size_t>(slot)] = true;
  for (size_t n = last; n < nodes_.size(); ++n) {
    const auto want = [&wanted](int slot) { wanted[static_cast<size_t>(slot)] = true; };
    for_each_slot(nodes_[n].args.get(), want);
    for_each_slot(nodes_[n].kwargs.get(), want);
  }
  std::vector<int> outputs;
  for (size_t i = 0; i < slots_.size(); ++i) {
    TapeSlot& slot = part->slots_[i];
    const bool made_before = !slot.input;
    const bool leaves = places[i] == Place::kMade && wanted[i];
    if (slot.derived && (leaves || (slot.whole && places[i] == Place::kComesIn))) return nullptr;
    if (leaves) outputs.push_back(static_cast<int>(i));
    // Sizes that vary are read from what comes with the call.
    const bool made_symbol = std::any_of(made_.symbols.begin(), made_.symbols.end(), [&](const MadeSymbol& made) {
      return made.slot == static_cast<int>(i) && made.node < first && !made.condition;
    });
    const bool tells_sizes =
        made_symbol || (slot.input && !symbols_.empty() && (slot.number || !slot.symbolic_sizes.empty()));
    slot.input = places[i] == Place::kComesIn || (tells_sizes && places[i] == Place::kElsewhere);
    if (places[i] != Place::kComesIn && !(made_symbol && slot.input)) continue;
    if (made_before) slot.guard_index = 0;
    slot.made_before = slot.made_before || made_before;
    slot.requires_grad = needs[i];
  }
  for (size_t i = 0; i < part->places_.size(); ++i) {
    // Its size may be no longer where it was read from.
    if (part->places_[i].slot < 0 || !reshapes_before(part->places_[i].slot, first)) continue;
    part->places_[i] = part->place_of(symbols_[i]);
    if (part->places_[i].slot < 0) return nullptr;
  }
  part->set_outputs(std::move(outputs));
  return part;
}

void Tape::collect_checks() {
  std::vector<bool> wanted(slots_.size(), false);
  for (size_t n = nodes_.size(); n-- > 0;) {
    const TapeNode& node = nodes_[n];
    const NumberOperation* call = number_operation(node);
    if (call == nullptr || (!call->guarded && !wanted[static_cast<size_t>(node.outputs[0])])) continue;
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
    Ref value = call_object(node, env, symbols);
    if (!value) forget_error();
    PyObject* const guarded = number_operation(node)->guarded.get();
    if (value && (guarded == nullptr || same_value(value.get(), guarded))) {
      env[static_cast<size_t>(node.outputs[0])] = std::move(value);
      continue;
    }
    if (why != nullptr)
      *why = str_cat("a number that the program decides by came out otherwise (", node.location.file, ":",
                     node.location.line, ")");
    return false;
  }
  return true;
}

void Tape::set_outputs(std::vector<int> outputs) {
  outputs_ = std::move(outputs);
  dead_after_ = tensors_by_last_use();
}

std::vector<std::vector<int>> Tape::tensors_by_last_use() const {
  const std::vector<int> last = last_uses();
  std::vector<std::vector<int>> result(nodes_.size());
  std::vector<bool> tells(slots_.size());  // a symbol's value, to all that comes later
  for (const MadeSymbol& made : made_.symbols) tells[static_cast<size_t>(made.slot)] = true;
  for (size_t s = 0; s < last.size(); ++s) {
    if (last[s] >= 0 && !slots_[s].number && !tells[s])
      result[static_cast<size_t>(last[s])].push_back(static_cast<int>(s));
  }
  return result;
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

bool Tape::read_symbol(size_t symbol, const std::vector<Ref>& env, TorchApi& api, int64_t& value) const {
  const SymbolPlace& place = places_[symbol];
  PyObject* const object = place.slot < 0 ? nullptr : env[static_cast<size_t>(place.slot)].get();
  if (object == nullptr) return true;
  if (slots_[static_cast<size_t>(place.slot)].number) {
    value = PyLong_AsLongLong(object);
    return value != -1 || PyErr_Occurred() == nullptr;
  }
  TensorMeta meta;
  if (!api.read_meta(object, meta)) {
    PyErr_SetString(PyExc_RuntimeError, "an input tensor cannot be imported");
    return false;
  }
  value = (place.stride ? meta.strides : meta.sizes).at(static_cast<size_t>(place.dim));
  return true;
}

bool Tape::symbol_values(const std::vector<Ref>& env, TorchApi& api, std::vector<int64_t>& symbols) const {
  for (size_t i = 0; i < places_.size(); ++i) {
    symbols.push_back(0);
    if (!read_symbol(i, env, api, symbols.back())) return false;
  }
  for (const MadeSymbol& made : made_.symbols) {
    if (made.condition) symbols[made.symbol] = hints_[made.symbol];  // unless torch runs the node
  }
  return true;
}

bool Tape::is_made(Expr e, ExprContext& ctx) const {
  return std::any_of(made_.symbols.begin(), made_.symbols.end(),
                     [&](const MadeSymbol& made) { return e.contains(ctx.import(symbols_[made.symbol])); });
}

void Tape::fill_inputs(const std::vector<PyObject*>& objects, std::vector<Ref>& env) const {
  env.resize(slots_.size());
  for (const Fill& fill : fills_) {
    PyObject* value = fill.guard_index >= 0 ? objects[static_cast<size_t>(fill.guard_index)] : fill.object;
    Ref given = fill.conjugate ? TorchApi::get()->beneath(value) : Ref::borrow(value);
    env[static_cast<size_t>(fill.slot)] = given ? std::move(given) : Ref::borrow(Py_None);
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
