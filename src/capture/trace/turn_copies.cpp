// Turns of a loop as copies of the watched one.
#include <algorithm>

#include "capture/trace/history_tracing.h"
#include "capture/trace/origin_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/turn_tracing.h"
#include "capture/trace/write_tracing.h"

namespace tatara::capture {

int TurnTracing::slot_of_role(const Copied& at, const Role& role) const {
  if (role.kind == Role::Kind::kFixed) return role.at;
  const Copied::Made& of = at.turns[static_cast<size_t>(role.lag)];
  const auto place = static_cast<size_t>(role.at);
  if (role.kind == Role::Kind::kItem) return trace_->tape.find(of.item[place].get());
  return of.slots[place][static_cast<size_t>(role.output)];
}

Ref TurnTracing::fill(const Copied& at, const Ref& arguments, const std::vector<Leaf>& leaves) const {
  size_t next = 0;
  return map_structure(arguments.get(), [&](PyObject* o) -> Ref {
    const Leaf& leaf = leaves[next++];
    if (leaf.tensor)
      return leaf.role.kind == Role::Kind::kFixed ? Ref::borrow(o) : make_slot_ref(slot_of_role(at, leaf.role));
    return leaf.step == 0 ? Ref::borrow(o) : Ref::steal(PyLong_FromLongLong(leaf.number + leaf.step * at.turn));
  });
}

/// `last`: the program may see any of its tensors.
void TurnTracing::append_turn(Copied& at, bool last) {
  Tape& tape = trace_->tape;
  for (size_t i = 0; i < own_.calls.size(); ++i) {
    const Template& call = own_.calls[i];
    TapeNode node = tape.nodes()[own_.first_node + i];
    if (call.changes) {
      node.args = fill(at, node.args, call.leaves);
      if (node.kwargs) node.kwargs = fill(at, node.kwargs, call.named);
    }
    std::vector<int>& made = at.turns[0].slots[i];
    made.assign(node.outputs.size(), -1);
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const Role& role = call.outputs[o];
      if (role.kind == Role::Kind::kMade && role.lag == 0 && role.at == static_cast<int>(i) &&
          role.output == static_cast<int>(o)) {
        const int like = node.outputs[o];
        Ref placeholder;
        if (last || own_.seen.contains((static_cast<int64_t>(i) << 32) + static_cast<int64_t>(o))) {
          const TapeSlot& slot = tape.slots()[static_cast<size_t>(like)];
          placeholder = api_.empty_meta(slot.sizes.get(), slot.strides.get(), slot.dtype.get());
        }
        made[o] = add_copy(tape, like, std::move(placeholder));
      } else {
        made[o] = slot_of_role(at, role);
      }
    }
    node.outputs = made;
    if (!node.grad) histories().note_silent_views(node);
    tape.add_node(std::move(node));
  }
}

Ref TurnTracing::build(const Copied& at, const Value& value) {
  switch (value.kind) {
    case Value::Kind::kSame: return value.object;
    case Value::Kind::kNumber: return Ref::steal(PyLong_FromLongLong(value.number + value.step * at.turn));
    case Value::Kind::kTensor: return trace_->tape.slots()[static_cast<size_t>(slot_of_role(at, value.role))].object;
    case Value::Kind::kTuple: break;
  }
  Ref made = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(value.parts.size())));
  for (size_t i = 0; i < value.parts.size(); ++i)
    PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), build(at, value.parts[i]).release());
  mark_born(made.get());
  return made;
}

/// As many turns behind the watched one: on the tape, in the lists that they append to, and in the frame.
void TurnTracing::append_turns(Frame& f, const Loop& loop, int64_t turns) {
  const std::vector<TapeNode>& nodes = trace_->tape.nodes();
  Copied at;
  for (size_t t = loop.turns.size(); t-- > 0;) {
    const size_t end = t + 1 < loop.turns.size() ? loop.turns[t + 1].nodes : nodes.size();
    Copied::Made& made = at.turns.emplace_back();
    made.item = loop.turns[t].item;
    for (size_t n = loop.turns[t].nodes; n < end; ++n) made.slots.push_back(nodes[n].outputs);
  }
  for (size_t i = 0; i < own_.calls.size(); ++i) set_alike(trace_->tape, own_.first_node + i);
  for (at.turn = 1; at.turn <= turns; ++at.turn) {
    const Ref item = Ref::steal(Py_TYPE(loop.iterator)->tp_iternext(loop.iterator));
    std::rotate(at.turns.begin(), at.turns.end() - 1, at.turns.end());
    at.turns[0].item.clear();
    at.turns[0].slots.resize(own_.calls.size());
    flatten_item(item.get(), at.turns[0].item);
    append_turn(at, turns - at.turn < static_cast<int64_t>(at.turns.size()));
    for (const Appended& each : own_.appended) {
      const Ref value = build(at, each.value);
      if (each.front) {
        PyList_Insert(each.list.get(), 0, value.get());
      } else {
        PyList_Append(each.list.get(), value.get());
      }
    }
  }
  at.turn = turns;
  for (const Appended& each : own_.appended) {
    writes().touch(each.list.get());
    origins().adopt_added(each.list.get(), each.front ? "insert" : "append");
  }
  for (size_t i = 0; i < own_.locals.size(); ++i) {
    if (own_.locals[i].kind != Value::Kind::kSame) f.set_local(static_cast<int>(i), build(at, own_.locals[i]).get());
  }
  own_.appended.clear();
  own_.locals.clear();
  own_.calls.clear();
}

}  // namespace tatara::capture
