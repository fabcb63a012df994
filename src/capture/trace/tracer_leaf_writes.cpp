// What the host's kinds of tensors allow and tell: in-place writes that it refuses at once (to leaves that require grad, and to
// views of them), and whether a tensor is a view.
#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "capture/host/known_calls.h"
#include "capture/tape/node_operators.h"
#include "capture/tape/view_origins.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"

namespace tatara::capture {
namespace {

/// Whether a call of this name writes to its first operand.
bool is_in_place(std::string_view name) {
  if (name == "__setitem__") return true;
  if (name.starts_with("__i") && name.ends_with("__"))
    return name != "__invert__" && name != "__index__" && name != "__int__";
  // These change the tensor itself, and may be called on a leaf.
  return name.size() > 1 && name.back() == '_' && name[name.size() - 2] != '_' && !known_torch(name).is(kKeepsLeaf);
}

}  // namespace

bool HistoryTracing::refused_as_leaf(PyObject* tensor) const {
  const Trace& t = *trace_;
  if (!api_.is_tensor(tensor)) return false;
  std::vector<int> slots = {t.tape.find(tensor)};
  // In eager, which runs the first call, the host refuses a write to a leaf that an operator gave against its schema.
  const auto own = [&](int slot) {
    const TapeNode* made = t.tape.makes(slot) ? t.tape.maker(slot) : nullptr;
    return made != nullptr && says_no_view(*made);
  };
  for (const int base : view_origin(t.tape, slots[0]).bases) {
    if (own(slots.back())) break;
    slots.push_back(base);
  }
  if (std::any_of(slots.begin(), slots.end(), [&](int slot) { return slot >= 0 && gradients().is_made_leaf(slot); }))
    return true;
  if (t.tape.makes(slots.back())) return false;
  if (slots.back() >= 0) tensor = t.tape.slots()[static_cast<size_t>(slots.back())].object.get();
  if (tensor == nullptr) return false;
  const auto leaf = [](PyObject* o) {
    return attribute_is_true(o, "requires_grad") && attribute_is_true(o, "is_leaf");
  };
  const Ref base = attr_or_null(tensor, "_base");
  return leaf(tensor) || (base && base.get() != Py_None && leaf(base.get()));
}

bool HistoryTracing::writes_to_leaf(const TorchFunction& fn, PyObject* args, PyObject* kwargs) {
  PyObject* target = kwargs != nullptr ? PyDict_GetItemString(kwargs, "out") : nullptr;
  if (target == nullptr && is_in_place(fn.name) && PyTuple_GET_SIZE(args) > 0) target = PyTuple_GET_ITEM(args, 0);
  if (target == nullptr || !transforms().open_levels().empty()) return false;
  const Bypass bypass(bypass_);
  if (!api_.grad_enabled()) return false;
  if (!PyTuple_Check(target) && !PyList_Check(target)) return refused_as_leaf(target);
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(target); ++i) {
    if (refused_as_leaf(PySequence_Fast_GET_ITEM(target, i))) return true;
  }
  return false;
}

bool HistoryTracing::keeps_data(PyObject* tensor, PyObject* data) const {
  if (data == nullptr || !api_.is_plain_torch(tensor) || !api_.is_plain_torch(data)) return false;
  if (!transforms().open_levels().empty()) return false;
  if (tensor == data) return true;
  const Tape& tape = trace_->tape;
  const int own = tape.find(tensor);
  int slot = tape.find(data);
  while (slot >= 0 && slot != own) {
    const TapeNode* made = tape.makes(slot) ? tape.maker(slot) : nullptr;
    const bool same = made != nullptr && is_operator_call(*made) && detaches(*made);
    slot = same ? slot_of(PyTuple_GET_ITEM(made->args.get(), 0)) : -1;
  }
  return slot >= 0 && std::none_of(tape.nodes().begin(), tape.nodes().end(),
                                   [](const TapeNode& node) { return known_torch(node.name).is(kChangesLayout); });
}

bool HistoryTracing::made_as_view(int slot) const {
  const TapeNode* made = trace_->tape.maker(slot);
  return made != nullptr && (may_be_view(trace_->tape, *made) || detaches(*made));
}

bool HistoryTracing::depends_on_base(const TorchFunction& fn, PyObject* args) const {
  PyObject* tensor =
      known_torch(fn.name).is(kDependsOnBase) && PyTuple_GET_SIZE(args) > 0 ? PyTuple_GET_ITEM(args, 0) : nullptr;
  if (tensor == nullptr || !api_.is_tensor(tensor)) return false;
  const int slot = trace_->tape.find(tensor);
  if (fn.name == "output_nr") {
    const TapeNode* made = trace_->tape.maker(slot);
    return !trace_->tape.makes(slot) || made == nullptr || made->sequence || made->outputs.size() != 1;
  }
  if (!trace_->tape.makes(slot) || made_as_view(slot)) return true;  // no guard speaks of it
  return fn.name == "is_inference" && trace_->knows_inference();
}

/// How often a tensor that the trace makes was written to in eager by now; -1: not known.
long HistoryTracing::version_of(PyObject* tensor) const {
  const Tape& tape = trace_->tape;
  const int slot = tape.find(tensor), start = slot >= 0 ? memory_owner(tape, slot) : -1;
  const TapeNode* made = tape.makes(start) ? tape.maker(start) : nullptr;
  if (made == nullptr || trace_->knows_inference() || !transforms().open_levels().empty()) return -1;
  const auto plain = [](const TapeNode& node) { return is_operator_call(node) && is_no_view(node); };
  if (!plain(*made) || made->mutates || made->outputs.size() != 1 || made->sequence) return -1;
  // Torch makes some results in several steps, the later ones in place.
  const Ref result = ask_host(*made, {}), begin = result ? attr_or_null(result.get(), "_version") : Ref();
  if (!begin) return -1;
  long count = PyLong_AsLong(begin.get());
  for (const TapeNode& node : tape.nodes()) {
    if (node.name == "data") return -1;  // it begins to count anew
    if (!node.mutates && !node.statistics) continue;
    const int target = PyTuple_GET_SIZE(node.args.get()) > 0 ? slot_of(PyTuple_GET_ITEM(node.args.get(), 0)) : -1;
    const bool out = node.kwargs && PyDict_GetItemString(node.kwargs.get(), "out") != nullptr;
    const bool known = plain(node) || node.name == "__setitem__" || !view_in_place(node).empty();
    if (target < 0 || out || !known) return -1;
    if (memory_owner(tape, target) == start) ++count;
  }
  return count;
}

}  // namespace tatara::capture
