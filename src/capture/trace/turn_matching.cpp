// Whether the turns behind the watched one are like it, and how many.
#include <algorithm>
#include <cstring>

#include "capture/entries/stats.h"
#include "capture/host/natures.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/turn_tracing.h"
#include "support/log.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

using Role = TurnTracing::Role;
using Leaf = TurnTracing::Leaf;

bool varies_by_turn(const Leaf& leaf) { return leaf.tensor ? leaf.role.kind != Role::Kind::kFixed : leaf.step != 0; }

bool equal(PyObject* a, PyObject* b) {
  const int same = PyObject_RichCompareBool(a, b, Py_EQ);
  if (same < 0) forget_error();
  return same == 1;
}

/// A tuple of ints alone, of any class.
bool holds_plain_ints(PyObject* o) {
  if (!PyTuple_Check(o)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) {
    if (!PyLong_CheckExact(PyTuple_GET_ITEM(o, i))) return false;
  }
  return true;
}

bool same_number(PyObject* a, PyObject* b) {
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyLong_CheckExact(a)) return equal(a, b);
  if (!PyFloat_CheckExact(a)) return false;
  const double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
  return std::memcmp(&x, &y, sizeof(x)) == 0;
}

int64_t size_of_dim(const SlotLayout& layout, int64_t dim) {
  PyObject* const sizes = layout.sizes.get();
  if (sizes == nullptr || !PyTuple_Check(sizes) || dim < 0 || dim >= PyTuple_GET_SIZE(sizes)) return -1;
  return PyLong_AsLongLong(PyTuple_GET_ITEM(sizes, static_cast<Py_ssize_t>(dim)));
}

bool is_index(PyObject* o) { return PyLong_CheckExact(o) || is_size_ref(o); }

bool lies_alike(const TapeSlot& a, const TapeSlot& b) {
  const bool plain = !a.number && !a.generator && !a.scalar && !a.conjugate && !a.parameter && a.level == 0 &&
                     a.sizes && a.strides && !b.number && !b.generator && !b.scalar && !b.conjugate && !b.parameter &&
                     b.level == 0 && b.sizes && b.strides;
  return plain && a.dtype.get() == b.dtype.get() &&
         (a.device.get() == b.device.get() || equal(a.device.get(), b.device.get())) &&
         equal(a.sizes.get(), b.sizes.get()) && equal(a.strides.get(), b.strides.get()) && a.symbolic_sizes.empty() &&
         b.symbolic_sizes.empty() && a.real == b.real;
}

}  // namespace

bool TurnTracing::Bound::fits(int64_t turns) const {
  const int64_t from = first + step * turns, to = last + step * turns;
  if (slice) return 0 <= from && from <= to && to <= size;
  return first >= 0 ? from >= 0 && from < size : from < 0 && from >= -size;
}

bool TurnTracing::give_up(const std::string& why) {
  if (own_.why.empty()) own_.why = why;
  return false;
}

/// What the slots are to the turn at `last`. False: some are two things.
bool TurnTracing::map_roles(const std::vector<Turn>& turns, size_t last, Roles& roles) const {
  const std::vector<TapeNode>& nodes = trace_->tape.nodes();
  roles.clear();
  size_t to = last + 1 < turns.size() ? turns[last + 1].nodes : nodes.size();
  for (size_t t = last + 1; t-- > 0;) {
    const Turn& turn = turns[t];
    const int lag = static_cast<int>(last - t);
    for (size_t n = turn.nodes; n < to; ++n) {
      for (size_t o = 0; o < nodes[n].outputs.size(); ++o) {
        const int slot = nodes[n].outputs[o];
        if (slot < static_cast<int>(turn.slots)) continue;
        roles.try_emplace(slot, Role{Role::Kind::kMade, static_cast<int>(n - turn.nodes), static_cast<int>(o), lag});
      }
    }
    to = turn.nodes;
    for (size_t i = 0; i < turn.item.size(); ++i) {
      if (!api_.is_tensor(turn.item[i].get())) continue;
      const int slot = trace_->tape.find(turn.item[i].get());
      const Role role{Role::Kind::kItem, static_cast<int>(i), 0, lag};
      if (slot < 0 || !roles.try_emplace(slot, role).second) return false;
    }
  }
  return true;
}

static Role role_of(const std::unordered_map<int, Role>& roles, int slot) {
  const auto found = roles.find(slot);
  return found != roles.end() ? found->second : Role{Role::Kind::kFixed, slot, 0, 0};
}

/// A number that is the same in all turns, or to which each adds as much.
bool TurnTracing::affine(PyObject* number, int64_t& value, int64_t& step) const {
  const Expr e = is_size_ref(number) ? size_ref_expr(number) : symbolic_expr(number);
  if (!e.valid()) return false;
  step = 0;
  value = e.context().evaluate_hint(e).value_or(0);
  if (!e.contains(own_.symbol)) return e.is_const();
  const Expr by = e.coefficient_of(own_.symbol);
  if (!by.valid() || !by.is_const()) return false;
  step = by.const_value();
  return true;
}

/// Whether an object that is no tensor, number or container is the same in both turns.
bool TurnTracing::match_object(PyObject* now, PyObject* then) const {
  if (now == then) return true;
  if (Py_TYPE(now) != Py_TYPE(then)) return false;
  return same_number(now, then) ||
         ((PyUnicode_CheckExact(now) || Py_TYPE(now) == api_.device_type) && equal(now, then)) ||
         (holds_plain_ints(now) && holds_plain_ints(then) && equal(now, then));
}

bool TurnTracing::match_arguments(PyObject* now, PyObject* then, std::vector<Leaf>& leaves) {
  if (const int slot = slot_of(now); slot >= 0) {
    const int other = slot_of(then);
    Leaf& leaf = leaves.emplace_back();
    leaf.tensor = true;
    leaf.role = role_of(own_.now, slot);
    return other >= 0 && leaf.role == role_of(own_.then, other);
  }
  if (slot_of(then) >= 0) return false;
  if (is_size_ref(now)) {
    Leaf& leaf = leaves.emplace_back();
    return affine(now, leaf.number, leaf.step) && PyLong_CheckExact(then) &&
           PyLong_AsLongLong(then) == leaf.number - leaf.step;
  }
  const bool tuple = PyTuple_CheckExact(now), list = PyList_CheckExact(now);
  if (tuple || list) {
    if (Py_TYPE(then) != Py_TYPE(now) || PySequence_Fast_GET_SIZE(now) != PySequence_Fast_GET_SIZE(then)) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(now); ++i) {
      if (!match_arguments(PySequence_Fast_GET_ITEM(now, i), PySequence_Fast_GET_ITEM(then, i), leaves)) return false;
    }
    return true;
  }
  if (PyDict_CheckExact(now)) {
    if (!PyDict_CheckExact(then) || PyDict_GET_SIZE(now) != PyDict_GET_SIZE(then)) return false;
    PyObject *key = nullptr, *value = nullptr, *other = nullptr, *there = nullptr;
    Py_ssize_t at = 0, place = 0;
    while (PyDict_Next(now, &at, &key, &value) != 0 && PyDict_Next(then, &place, &other, &there) != 0) {
      if (!match_object(key, other) || !match_arguments(value, there, leaves)) return false;
    }
    return true;
  }
  if (PySlice_Check(now)) {
    if (!PySlice_Check(then)) return false;
    const auto *a = reinterpret_cast<PySliceObject*>(now), *b = reinterpret_cast<PySliceObject*>(then);
    return match_arguments(a->start, b->start, leaves) && match_arguments(a->stop, b->stop, leaves) &&
           match_arguments(a->step, b->step, leaves);
  }
  leaves.emplace_back();
  return match_object(now, then);
}

bool TurnTracing::match_outputs(size_t call, size_t now, size_t then, Template& made) {
  const std::vector<TapeNode>& nodes = trace_->tape.nodes();
  const std::vector<TapeSlot>& slots = trace_->tape.slots();
  const std::vector<int>&ours = nodes[now].outputs, &theirs = nodes[then].outputs;
  if (ours.size() != theirs.size()) return false;
  for (size_t o = 0; o < ours.size(); ++o) {
    Role role = role_of(own_.now, ours[o]);
    if (!(role == role_of(own_.then, theirs[o]))) return false;
    if (role.kind == Role::Kind::kMade && role.lag == 0 && role.at == static_cast<int>(call) &&
        !lies_alike(slots[static_cast<size_t>(ours[o])], slots[static_cast<size_t>(theirs[o])]))
      return give_up("the types of its results change");
    made.outputs.push_back(role);
  }
  return true;
}

/// The parts of a key. `leaf`: the first of its leaves; then the first behind them.
bool TurnTracing::bound_key(PyObject* key, const std::vector<Leaf>& leaves, const SlotLayout& layout, size_t& leaf) {
  const Ref items = PyTuple_CheckExact(key) ? Ref::borrow(key) : Ref::steal(PyTuple_Pack(1, key));
  const Py_ssize_t count = PyTuple_GET_SIZE(items.get());
  int64_t rank = layout.sizes ? PyTuple_GET_SIZE(layout.sizes.get()) : 0, used = 0, dim = 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = PyTuple_GET_ITEM(items.get(), i);
    const bool known = is_index(item) || PySlice_Check(item) || item == Py_Ellipsis || item == Py_None;
    if (!known) return false;
    used += is_index(item) || PySlice_Check(item) ? 1 : 0;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = PyTuple_GET_ITEM(items.get(), i);
    if (item == Py_Ellipsis) dim += rank - used;
    if (is_index(item)) {
      const Leaf& index = leaves[leaf];
      if (index.step != 0)
        own_.bounds.push_back({index.number, index.number, index.step, size_of_dim(layout, dim), false});
    } else if (PySlice_Check(item)) {
      const auto* slice = reinterpret_cast<PySliceObject*>(item);
      const Leaf &from = leaves[leaf], &to = leaves[leaf + 1];
      if (leaves[leaf + 2].step != 0 || from.step != to.step) return false;
      if (from.step != 0) {
        if (!is_index(slice->start) || !is_index(slice->stop) || slice->step != Py_None) return false;
        own_.bounds.push_back({from.number, to.number, from.step, size_of_dim(layout, dim), true});
      }
      leaf += 2;
    }
    ++leaf;
    if (is_index(item) || PySlice_Check(item)) ++dim;
  }
  return true;
}

/// Numbers that change with the turn are indices, as long as they lie within.
bool TurnTracing::bound_indices(size_t node, const Template& made) {
  const auto varies = [](const Leaf& leaf) { return !leaf.tensor && leaf.step != 0; };
  if (std::any_of(made.named.begin(), made.named.end(), varies)) return false;
  if (std::none_of(made.leaves.begin(), made.leaves.end(), varies)) return true;
  const TapeNode& call = trace_->tape.nodes()[node];
  PyObject* const args = call.args.get();
  const Py_ssize_t count = PyTuple_GET_SIZE(args);
  const int operand = count > 1 ? slot_of(PyTuple_GET_ITEM(args, 0)) : -1;
  if (operand < 0 || call.kwargs) return false;
  const SlotLayout& layout = trace_->tape.layout(operand);
  if (!layout.symbolic_sizes.empty()) return false;
  size_t leaf = 1;
  if (call.name != "__getitem__" && call.name != "__setitem__") return false;
  if (!bound_key(PyTuple_GET_ITEM(args, 1), made.leaves, layout, leaf)) return false;
  return std::none_of(made.leaves.begin() + static_cast<std::ptrdiff_t>(leaf), made.leaves.end(), varies);
}

/// A call of the watched turn, node `now`, and that of the turn before, node `then`.
bool TurnTracing::match(size_t call, size_t now, size_t then, Template& made) {
  const std::vector<TapeNode>& nodes = trace_->tape.nodes();
  const TapeNode &a = nodes[now], &b = nodes[then];
  const bool plain = is_operator_call(a) && is_operator_call(b) && a.name == b.name && a.reshaped.empty() &&
                     b.reshaped.empty() && a.sequence == b.sequence && a.mutates == b.mutates &&
                     a.statistics == b.statistics && a.generator == b.generator && a.grad == b.grad &&
                     a.mode == b.mode && a.level == 0 && b.level == 0 &&
                     (a.func.get() == b.func.get() || equal(a.func.get(), b.func.get()));
  if (is_on_foreign(trace_->tape, a)) return give_up("it calls what torch alone runs: " + a.name);
  if (!plain || static_cast<bool>(a.kwargs) != static_cast<bool>(b.kwargs))
    return give_up("its calls are others: " + a.name);
  if (!match_arguments(a.args.get(), b.args.get(), made.leaves) ||
      (a.kwargs && !match_arguments(a.kwargs.get(), b.kwargs.get(), made.named)) ||
      !match_outputs(call, now, then, made))
    return give_up("its operands are others: " + a.name);
  if (!bound_indices(now, made)) return give_up("a number that changes is an argument: " + a.name);
  made.changes = std::any_of(made.leaves.begin(), made.leaves.end(), varies_by_turn) ||
                 std::any_of(made.named.begin(), made.named.end(), varies_by_turn);
  return true;
}

/// What a variable holds behind the watched turn, before it, and a turn earlier.
bool TurnTracing::match_value(PyObject* after, PyObject* at, PyObject* before, Value& value) const {
  value.object = Ref::borrow(after);
  if (after == at && at == before) return true;
  if (after == nullptr || at == nullptr || before == nullptr) return false;
  if (is_symbolic_int(after)) {
    value.kind = Value::Kind::kNumber;
    const std::optional<int64_t> by = step_between(Ref::borrow(before), Ref::borrow(at));
    const bool whole = by && affine(after, value.number, value.step);
    return whole && *by == value.step && PyLong_AsLongLong(at) + *by == value.number;
  }
  if (api_.is_tensor(after)) {
    if (!api_.is_tensor(at)) return false;
    const int slot = trace_->tape.find(after), other = trace_->tape.find(at);
    value.kind = Value::Kind::kTensor;
    value.role = slot >= 0 ? role_of(own_.now, slot) : Role();
    return slot >= 0 && other >= 0 && value.role.kind != Role::Kind::kFixed && value.role == role_of(own_.then, other);
  }
  if (PyTuple_CheckExact(after) && PyTuple_CheckExact(at) && PyTuple_CheckExact(before) &&
      PyTuple_GET_SIZE(after) == PyTuple_GET_SIZE(at) && PyTuple_GET_SIZE(at) == PyTuple_GET_SIZE(before)) {
    value.kind = Value::Kind::kTuple;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(after); ++i) {
      if (!match_value(PyTuple_GET_ITEM(after, i), PyTuple_GET_ITEM(at, i), PyTuple_GET_ITEM(before, i),
                       value.parts.emplace_back()))
        return false;
    }
    return true;
  }
  return match_object(after, at) && match_object(at, before);
}

bool TurnTracing::match_frame(const Frame& f, const Turn& before, const Turn& turn) {
  if (f.local_count() != static_cast<int>(turn.locals.size()) ||
      f.stack_depth() != static_cast<int>(turn.stack.size()) || before.stack.size() != turn.stack.size())
    return give_up("another frame");
  for (int i = 0; i < f.stack_depth(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (f.stack()[i] != turn.stack[at].get() || turn.stack[at].get() != before.stack[at].get())
      return give_up("what is on the stack changes");
  }
  own_.locals.clear();
  for (size_t i = 0; i < turn.locals.size(); ++i) {
    if (match_value(f.local(static_cast<int>(i)), turn.locals[i].get(), before.locals[i].get(),
                    own_.locals.emplace_back()))
      continue;
    return give_up(str_cat("variable ", i, " changes in another way"));
  }
  const Bypass bypass(bypass_);
  const bool grad = api_.grad_enabled();
  return (grad == turn.grad && grad == before.grad) || give_up("the grad mode changes");
}

bool TurnTracing::describe(PyObject* object, Value& value) {
  value.object = Ref::borrow(object);
  if (is_symbolic_int(object)) {
    value.kind = Value::Kind::kNumber;
    return affine(object, value.number, value.step);
  }
  if (api_.is_tensor(object)) {
    const int slot = trace_->tape.find(object);
    if (slot < 0) return !born_in_turn(object);
    value.role = role_of(own_.now, slot);
    if (value.role.kind == Role::Kind::kFixed) return true;
    value.kind = Value::Kind::kTensor;
    if (value.role.kind == Role::Kind::kMade)
      own_.seen.insert((static_cast<int64_t>(value.role.at) << 32) + value.role.output);
    return true;
  }
  if (PyTuple_CheckExact(object)) {
    value.kind = Value::Kind::kTuple;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
      if (!describe(PyTuple_GET_ITEM(object, i), value.parts.emplace_back())) return false;
    }
    return true;
  }
  return (is_atom(object, api_) && !is_symbolic_number(object)) || !born_in_turn(object);
}

bool TurnTracing::match_appended(const Turn& before, const Turn& turn) {
  own_.seen.clear();
  std::unordered_set<PyObject*> lists;
  for (Appended& each : own_.appended) {
    lists.insert(each.list.get());
    if (!describe(each.object.get(), each.value)) return give_up("it appends what each turn makes");
    if (own_.read.contains(each.list.get()) || own_.opaque) return give_up("it reads a list that it appends to");
  }
  for (size_t i = before.appends; i < turn.appends; ++i) {
    if (!lists.contains(own_.filled[i])) return give_up("the turn before appends to another list");
  }
  return true;
}

bool TurnTracing::match_turns(Frame& f, const Loop& loop) {
  own_.why.clear();
  own_.calls.clear();
  own_.bounds.clear();
  if (own_.odd != nullptr) return give_up(own_.odd);
  const size_t last = loop.turns.size() - 1;
  const Turn &before = loop.turns[last - 1], &turn = loop.turns[last];
  const size_t end = trace_->tape.nodes().size(), count = end - turn.nodes;
  if (!same_calls(before, turn, end)) return give_up("its calls are others");
  if (!map_roles(loop.turns, last, own_.now) || !map_roles(loop.turns, last - 1, own_.then))
    return give_up("its items are not apart");
  for (size_t i = 0; i < count; ++i) {
    if (!match(i, turn.nodes + i, before.nodes + i, own_.calls.emplace_back())) return false;
  }
  return match_frame(f, before, turn) && match_appended(before, turn);
}

/// How many turns behind the watched one go its way, and are not the loop's last.
int64_t TurnTracing::turns_alike(const Turn& watched, const std::vector<TurnItems>& items,
                                 const std::vector<ExprProgram>& conditions) const {
  int64_t turns = turns_left(items) - 1;
  for (const Bound& bound : own_.bounds) {
    while (turns > 0 && !bound.fits(turns)) --turns;
  }
  const std::vector<TapeSlot>& slots = trace_->tape.slots();
  for (int64_t turn = 1; turn <= turns; ++turn) {
    const int64_t number = own_.turn + turn;
    for (const ExprProgram& condition : conditions) {
      if (condition.try_evaluate({&number, 1}).value_or(0) == 0) return turn - 1;
    }
    for (size_t i = 0; i < items.size(); ++i) {
      if (!items[i].sequence) continue;
      PyObject* const item = items[i].at(turn - 1);
      const int slot = item != nullptr ? trace_->tape.find(item) : -1;
      const int like = trace_->tape.find(watched.item[i].get());
      if (slot < 0 || like < 0 || !trace_->tape.makes(slot) || slot == like ||
          !lies_alike(slots[static_cast<size_t>(slot)], slots[static_cast<size_t>(like)]))
        return turn - 1;
    }
  }
  return turns;
}

/// The numbers of the watched turn are plain from here on: those of the tape, and those that the program has.
void TurnTracing::settle() {
  Trace& t = *trace_;
  for (const int slot : settle_sizes(t.tape, own_.first_node, own_.first_slot, t.symbols.hints()))
    t.inference.forget(slot);
  t.symbols.end_turn();
  t.snap.facts = 0;
}

void TurnTracing::copy_turns(Frame& f, Loop& loop, const std::vector<TurnItems>& items) {
  constexpr int64_t kWorthIt = 4;
  const Bypass bypass(bypass_);
  const bool alike = match_turns(f, loop);
  std::vector<ExprProgram> conditions;
  for (const Expr e : trace_->symbols.ctx().guards()) conditions.push_back(trace_->symbols.program(e));
  settle();
  own_.watched = nullptr;
  const int64_t turns = alike ? turns_alike(loop.turns.back(), items, conditions) : 0;
  if (log_enabled(LogChannel::kCapture))
    log_line(LogChannel::kCapture,
             str_cat("  ", turns, " turns like turn ", own_.turn, own_.why.empty() ? std::string() : ": " + own_.why));
  if (turns < kWorthIt) {
    loop.wait = loop.count + loop.count;
    return;
  }
  append_turns(f, loop, turns);
  stats().turns_copied += static_cast<uint64_t>(turns);
  loop.count += turns;
  loop.tried = 0;
  loop.turns.clear();
}

}  // namespace tatara::capture
