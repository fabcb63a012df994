// Which turns of a loop are watched, and what the program does in one. What is made of it: turn_copies.cpp.
#include "capture/trace/turn_tracing.h"

#include <algorithm>
#include <functional>

#include "capture/host/natures.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/tracer_modes.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/turn_items.h"
#include "capture/vm/interrupts.h"
#include "support/log.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

constexpr size_t kTurnsNeeded = 3;  // the one that begins, and two before it
constexpr size_t kTurnsKept = 5;    // a turn may read what was made three turns ago
constexpr int64_t kLeastLeft = 12;  // fewer turns are not worth a look
constexpr int64_t kMostTries = 4;   // in vain, for each loop

bool is_zero(PyObject* number) {
  int overflow = 0;
  return PyLong_CheckExact(number) && PyLong_AsLongLongAndOverflow(number, &overflow) == 0 && overflow == 0;
}

}  // namespace

bool TurnTracing::may_copy(const Frame& f) const {
  const Trace& t = *trace_;
  return tracing() && context_.ahead == nullptr && !context_.dry_run && !f.is_generator() && api_.present() &&
         !t.tape.seen().numpy && !t.tape.has_transforms() && transforms().open() == 0 && !modes().has_programs() &&
         (watching() || t.symbols.empty()) && numbers().varying().empty();
}

TurnTracing::Loop& TurnTracing::loop_of(const Frame& f, PyObject* iterator) {
  // A loop deeper in this frame, or in one that has ended, is over.
  std::erase_if(own_.loops, [&](const Loop& loop) {
    const auto& frames = context_.frames;
    if (std::find(frames.begin(), frames.end(), loop.frame) == frames.end()) return true;
    const bool same = loop.iterator == iterator && loop.offset == f.offset() && loop.depth == f.stack_depth();
    return loop.frame == &f && !same && loop.depth >= f.stack_depth();
  });
  for (Loop& loop : own_.loops) {
    if (loop.frame == &f && loop.iterator == iterator) return loop;
  }
  Loop& made = own_.loops.emplace_back();
  made.frame = &f;
  made.iterator = iterator;
  made.offset = f.offset();
  made.depth = f.stack_depth();
  return made;
}

/// Whether both turns made calls of the same names; the later one ends at node `end`.
bool TurnTracing::same_calls(const Turn& before, const Turn& turn, size_t end) const {
  const std::vector<TapeNode>& nodes = trace_->tape.nodes();
  const size_t count = turn.nodes - before.nodes;
  if (count == 0 || end - turn.nodes != count) return false;
  for (size_t i = 0; i < count; ++i) {
    const TapeNode &one = nodes[before.nodes + i], &other = nodes[turn.nodes + i];
    if (one.name != other.name || !is_operator_call(one) || !is_operator_call(other)) return false;
  }
  return true;
}

bool TurnTracing::worth_watching(const Loop& loop) const {
  if (loop.turns.size() < kTurnsNeeded || loop.count < loop.wait || loop.tried >= kMostTries ||
      !trace_->symbols.empty())
    return false;
  const size_t last = loop.turns.size() - 1;
  const Turn &first = loop.turns[last - 2], &before = loop.turns[last - 1], &turn = loop.turns[last];
  return !lists_pass(option_text(Option::kDisable, owner_.options), "copy_turns") &&
         same_calls(first, before, turn.nodes) && before.writes == turn.writes && !trace_->tape.has_regions() &&
         !trace_->tape.has_custom_backwards();
}

PyObject* TurnTracing::step(Frame& f, PyObject* iterator) {
  // The watched loop was left by a `break`.
  if (watching() && iterator != own_.watched && own_.frame == &f && f.stack_depth() <= own_.depth) stop();
  if (watching() && iterator != own_.watched) {
    steps(iterator);
    return not_handled();
  }
  std::vector<TurnItems> items;
  if (!may_copy(f) || !read_items(iterator, items)) {
    stop();
    return not_handled();
  }
  if (watching()) {
    copy_turns(f, loop_of(f, iterator), items);
    items.clear();
    read_items(iterator, items);
  }
  Loop& loop = loop_of(f, iterator);
  const int64_t left = turns_left(items);
  if (left != loop.left) loop.turns.clear();  // another loop's iterator was here before
  loop.left = left - 1;
  Ref item = Ref::steal(Py_TYPE(iterator)->tp_iternext(iterator));
  if (!item) {
    std::erase_if(own_.loops, [&](const Loop& each) { return &each == &loop; });
    return nullptr;
  }
  Turn turn;
  turn.nodes = trace_->tape.nodes().size();
  turn.slots = trace_->tape.slots().size();
  turn.writes = own_.writes;
  turn.appends = own_.filled.size();
  own_.births = trace_->births;
  for (int i = 0; i < f.local_count(); ++i) turn.locals.push_back(Ref::borrow(f.local(i)));
  for (int i = 0; i < f.stack_depth(); ++i) turn.stack.push_back(Ref::borrow(f.stack()[i]));
  flatten_item(item.get(), turn.item);
  {
    const Bypass bypass(bypass_);
    turn.grad = api_.grad_enabled();
  }
  if (!loop.turns.empty() && loop.turns.back().item.size() != turn.item.size()) loop.turns.clear();
  loop.turns.push_back(std::move(turn));
  if (loop.turns.size() > kTurnsKept) loop.turns.erase(loop.turns.begin());
  ++loop.count;
  if (left <= kLeastLeft || !worth_watching(loop)) return item.release();
  items.clear();
  if (!read_items(iterator, items) || items.size() != loop.turns.back().item.size()) return item.release();
  watch(f, loop, items);
  return with_symbols(item.get(), 0).release();
}

/// The number of the turn is a symbol until the turn ends: in the item, and in what each turn changes by as much.
void TurnTracing::watch(Frame& f, Loop& loop, const std::vector<TurnItems>& items) {
  ++loop.tried;
  const Turn &before = loop.turns[loop.turns.size() - 2], &turn = loop.turns.back();
  own_.watched = loop.iterator;
  own_.frame = &f;
  own_.depth = loop.depth;
  own_.first_node = turn.nodes;
  own_.first_slot = turn.slots;
  own_.turn = loop.count;
  own_.odd = nullptr;
  own_.opaque = false;
  own_.read.clear();
  own_.appended.clear();
  own_.steps.clear();
  own_.symbol =
      trace_->symbols.begin_turn(loop.count, {loop.count, loop.count + turns_left(items)}, [this] { stop(); });
  for (size_t i = 0; i < items.size(); ++i) {
    PyObject* const sequence = items[i].sequence.get();
    if (sequence != nullptr && PyList_Check(sequence)) own_.read.insert(sequence);
    own_.steps.push_back(sequence == nullptr ? step_between(before.item[i], turn.item[i]) : std::nullopt);
  }
  for (size_t i = 0; i < turn.locals.size(); ++i) {
    const std::optional<int64_t> by = step_between(before.locals[i], turn.locals[i]);
    if (by && *by != 0) f.set_local(static_cast<int>(i), in_turns(turn.locals[i].get(), *by).get());
  }
}

/// A number of the watched turn that each turn changes by `step`.
Ref TurnTracing::in_turns(PyObject* number, int64_t step) {
  TraceSymbols& symbols = trace_->symbols;
  ExprContext& ctx = symbols.ctx();
  const Expr since = ctx.sub(own_.symbol, ctx.constant(own_.turn));
  return symbols.make(ctx.add(ctx.constant(PyLong_AsLongLong(number)), ctx.mul(ctx.constant(step), since)));
}

/// The item with symbols in place of its numbers, of which `part` is the first.
Ref TurnTracing::with_symbols(PyObject* item, size_t part) {
  size_t at = part;
  const std::function<Ref(PyObject*)> change = [&](PyObject* o) -> Ref {
    if (PyTuple_CheckExact(o)) {
      Ref made = Ref::steal(PyTuple_New(PyTuple_GET_SIZE(o)));
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
        PyTuple_SET_ITEM(made.get(), i, change(PyTuple_GET_ITEM(o, i)).release());
      context_.mark_born(made.get());
      return made;
    }
    const std::optional<int64_t> by = own_.steps[at++];
    return by && *by != 0 ? in_turns(o, *by) : Ref::borrow(o);
  };
  return change(item);
}

// ---- What the program does --------------------------------------------------------------------------------------------

bool TurnTracing::born_in_turn(PyObject* object) const {
  const std::optional<size_t> made = born_at(object);
  return made && *made >= own_.births;
}

void TurnTracing::reads(PyObject* object) {
  if (!watching() || object == nullptr) return;
  if (PyList_Check(object)) {
    own_.read.insert(object);
  } else if (PyTuple_Check(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) reads(PyTuple_GET_ITEM(object, i));
  }
}

void TurnTracing::looks_up(PyObject* key) {
  if (!watching()) return;
  if (api_.is_tensor(key)) odd("a tensor is a key");
  for (Py_ssize_t i = 0; PyTuple_Check(key) && i < PyTuple_GET_SIZE(key); ++i) looks_up(PyTuple_GET_ITEM(key, i));
}

/// In a text: of other objects it may have an address.
void TurnTracing::shows(PyObject* value) {
  if (!watching() || PyUnicode_CheckExact(value) || PyLong_CheckExact(value) || PyFloat_CheckExact(value) ||
      PyBool_Check(value) || value == Py_None || is_symbolic_number(value))
    return;
  if (!PyTuple_Check(value)) return odd("a text of an object");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) shows(PyTuple_GET_ITEM(value, i));
}

void TurnTracing::changes(const char* what) {
  if (own_.loops.empty()) return;
  ++own_.writes;
  odd(what);
  stop();
}

void TurnTracing::writes_to(PyObject* container, PyObject* key) {
  if (own_.loops.empty()) return;
  if (key != nullptr) looks_up(key);
  if (container != nullptr && born_in_turn(container)) return;
  ++own_.writes;
  odd("it writes to an object");
}

void TurnTracing::appends(PyObject* list, PyObject* value, bool front) {
  if (own_.loops.empty() || born_in_turn(list)) return;
  own_.filled.push_back(list);
  if (!watching()) return;
  if (!PyList_CheckExact(list) || !born(list)) return odd("it appends to what is older than the trace");
  own_.appended.push_back({Ref::borrow(list), Ref::borrow(value), {}, front});
}

void TurnTracing::builds(BuildKind kind, PyObject* object) {
  if (!watching()) return;
  if (kind == BuildKind::kGenerator || kind == BuildKind::kSet) return odd("it makes a generator or a set");
  if (kind != BuildKind::kDict) return;
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(object, &at, &key, &value) != 0) {
    if (!PyUnicode_CheckExact(key)) odd("a dict with keys that are no names");
  }
}

void TurnTracing::steps(PyObject* iterator) {
  if (watching() && !born_in_turn(iterator)) odd("it steps another iterator");
}

void TurnTracing::calls_torch(const TorchFunction& fn) {
  if (!watching()) return;
  switch (fn.kind) {
    case TorchKind::kRecord:
    case TorchKind::kDevice:
    case TorchKind::kPassthrough:
    case TorchKind::kPython: return;
    case TorchKind::kMetadata:
      // Turns that are copied have tensors of the same types, but other histories and places in memory.
      if (known_torch(fn.name).is(kDiffersInLevels) || fn.name == "storage_offset" || fn.name == "__hash__")
        odd("it asks for more than a tensor's type");
      return;
    case TorchKind::kGrad:
    case TorchKind::kToCpu:
    case TorchKind::kBreak: return odd("it asks for a tensor's value or history");
  }
}

/// Before a call that is no torch call on tensors.
void TurnTracing::calls(const TracedCall& call, const CallPlan& plan) {
  using Kind = CallPlan::Kind;
  if (own_.loops.empty()) return;
  PyObject* const self = PyCFunction_Check(call.callable) ? PyCFunction_GET_SELF(call.callable) : nullptr;
  switch (plan.kind) {
    case Kind::kEnter:
    case Kind::kTorch:
    case Kind::kFalse:
    case Kind::kTrue:
    case Kind::kAttribute: return;
    case Kind::kMutator: {
      const bool append = plan.name == "append" && call.keywords() == 0 && plan.target != nullptr;
      PyObject* const value = call.nargs() > 0 ? call.args[call.nargs() - 1] : nullptr;
      const bool front = plan.name == "insert" && call.keywords() == 0 && plan.target != nullptr && call.nargs() >= 2 &&
                         is_zero(call.args[call.nargs() - 2]);
      if ((append || front) && PyList_CheckExact(plan.target) && value != nullptr)
        return appends(plan.target, value, front);
      return writes_to(plan.target, call.nargs() > 0 && plan.target != call.args[0] ? call.args[0] : nullptr);
    }
    case Kind::kModes:
    case Kind::kPushMode:
    case Kind::kPopMode:
    case Kind::kSwitch:
    case Kind::kBreak: return changes("a call that changes a state");
    case Kind::kPure: break;
  }
  if (plan.watched || plan.weak != nullptr || plan.variable != nullptr || plan.name == "id" || plan.name == "next") {
    if (plan.name == "next") ++own_.writes;
    return odd("a call that reads a state");
  }
  if (!watching() || !call.reads_contents()) return;
  const std::function<void(PyObject*)> look = [&](PyObject* o) {
    if (o == nullptr || api_.is_tensor(o) || is_atom(o, api_) || is_symbolic_number(o) || PyModule_Check(o)) return;
    reads(o);
    if (PyTuple_Check(o)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) look(PyTuple_GET_ITEM(o, i));
    } else if (!PyList_Check(o) && !PyType_Check(o) && !PyFunction_Check(o)) {
      own_.opaque = true;
    }
  };
  look(self);
  for (PyObject* const each : call.operands()) look(each);
}

void TurnTracing::stop() {
  if (!watching()) return;
  if (trace_ != nullptr) settle();
  own_.watched = nullptr;
}

void TurnTracing::end() {
  stop();
  own_ = {};
}

}  // namespace tatara::capture
