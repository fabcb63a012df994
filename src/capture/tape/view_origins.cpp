#include "capture/tape/view_origins.h"

#include <algorithm>

#include "capture/tape/node_kinds.h"
#include "capture/tape/transaction.h"

namespace tatara::capture {

ViewOrigin view_origin(const Tape& tape, int slot) {
  ViewOrigin origin;
  for (int at = slot;;) {
    const TapeNode* made = tape.makes(at) ? tape.maker(at) : nullptr;
    if (made == nullptr || !may_be_view(tape, *made) || PyTuple_GET_SIZE(made->args.get()) == 0) break;
    const int operand = slot_of(PyTuple_GET_ITEM(made->args.get(), 0));
    if (operand < 0 || operand == at) break;
    if (detaches(*made)) {
      origin.constant = true;
      origin.detached = origin.detached || at == slot;
    }
    origin.uncounted = origin.uncounted || made->name == "data";
    origin.recorded = origin.recorded || made->grad;
    origin.silent = origin.silent || !made->grad;
    if (!origin.constant) origin.bases.push_back(operand);
    origin.base = at = operand;
  }
  return origin;
}

int memory_owner(const Tape& tape, int slot) {
  const int base = view_origin(tape, slot).base;
  return base < 0 ? slot : base;
}

Ref apart_as(const ViewOrigin& origin, PyObject* tensor) {
  if (origin.uncounted) return attr(tensor, "data");
  return Ref::steal(PyObject_CallMethod(tensor, "detach", nullptr));
}

bool writes_uncounted(const Tape& tape, const TapeNode& node) {
  if (!node.mutates || !is_operator_call(node)) return false;
  bool found = false;
  for (PyObject* argument : written_arguments(node)) {
    for_each_slot(argument, [&](int slot) { found = found || view_origin(tape, slot).uncounted; });
  }
  return found;
}

bool changes_saved(const Tape& tape, const TapeNode& node, bool later) {
  if (!writes_uncounted(tape, node)) return false;
  const TapeNode* const end = tape.nodes().data() + tape.nodes().size();
  for (const TapeNode* at = &node; at != end && !later; ++at) later = gradient_pass(*at) != nullptr;
  if (!later) return false;
  std::vector<int> written;
  for (PyObject* argument : written_arguments(node)) {
    for_each_slot(argument, [&](int slot) { written.push_back(memory_owner(tape, slot)); });
  }
  std::vector<bool> history;  // per slot: whether gradients flow through it
  for (const TapeSlot& slot : tape.slots()) history.push_back(slot.input && slot.requires_grad);
  for (const TapeNode* at = tape.nodes().data(); at != &node; ++at) {
    bool flows = is_leaf_mark(*at), found = false;
    const auto look = [&](int slot) {
      flows = flows || history[static_cast<size_t>(slot)];
      found = found || std::find(written.begin(), written.end(), memory_owner(tape, slot)) != written.end();
    };
    for_each_slot(at->args.get(), look);
    if (at->kwargs) for_each_slot(at->kwargs.get(), look);
    for (const int slot : at->outputs) look(slot);
    if (!flows || !at->grad || detaches(*at)) continue;
    if (found && !may_be_view(tape, *at)) return true;
    for (const int slot : at->outputs) history[static_cast<size_t>(slot)] = true;
  }
  return false;
}

bool writes_shared_memory(const Tape& tape) {
  return std::any_of(tape.nodes().begin(), tape.nodes().end(), [&tape](const TapeNode& node) {
    bool shared = false;
    const auto look = [&](int slot) {
      const TapeSlot& info = tape.slots()[static_cast<size_t>(slot)];
      shared = shared || (!info.owns && !info.scalar);
    };
    if (node.mutates && is_numpy_operation(node)) for_each_slot(node.args.get(), look);
    return shared;
  });
}

bool changes_older(const Tape& tape, size_t n, size_t first) {
  const TapeNode& node = tape.nodes()[n];
  const auto older = [&](int slot) {
    const TapeNode* maker = tape.makes(slot) ? tape.maker(slot) : nullptr;
    return maker == nullptr || maker < &tape.nodes()[first];
  };
  if (is_leaf_mark(node)) return older(node.outputs[0]);
  if (!node.mutates) return false;
  if (const auto* call = std::get_if<NumpyOperation>(&node.kind); call != nullptr && call->target >= 0)
    return older(call->target);
  if (!is_operator_call(node)) return true;
  bool any = false, found = false;
  for (PyObject* argument : written_arguments(node)) {
    for_each_slot(argument, [&](int slot) {
      any = true;
      const int base = view_origin(tape, slot).base;
      const int made = base >= 0 ? base : slot;
      found = found || older(made) || may_be_view(tape, *tape.maker(made));
    });
  }
  return found || !any;
}

}  // namespace tatara::capture
