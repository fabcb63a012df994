#include "capture/graph/hidden_views.h"

#include <algorithm>
#include <vector>

#include "capture/host/known_calls.h"
#include "capture/tape/transaction.h"
#include "capture/tape/view_origins.h"

namespace tatara::capture {
namespace {

/// Whether the call indexes by tensors of one number, and by no others.
bool takes_number(const Tape& tape, const TapeNode& node) {
  if (node.mutates || node.level != 0 || node.outputs.size() != 1 || PyTuple_GET_SIZE(node.args.get()) != 2 ||
      !known_torch(node.name).is(kTakesMasks))
    return false;
  bool numbers = false, others = false;
  for_each_slot(PyTuple_GET_ITEM(node.args.get(), 1), [&](int slot) {
    const TapeSlot& index = tape.slots()[static_cast<size_t>(slot)];
    const bool one =
        !index.number && index.sizes && (PyTuple_GET_SIZE(index.sizes.get()) == 0 || tape.reshaped(slot) != nullptr);
    numbers = numbers || one;
    others = others || (!one && !index.number);
  });
  return numbers && !others && slot_of(PyTuple_GET_ITEM(node.args.get(), 0)) >= 0;
}

/// What is asked about the result of one call.
class HiddenView {
 public:
  HiddenView(const Tape& tape, size_t node)
      : tape_(tape), node_(node), slot_(tape.nodes()[node].outputs[0]), root_(memory_owner(tape_, slot_)) {}

  bool is_seen() const {
    if (leaves()) return true;
    const std::vector<TapeNode>& nodes = tape_.nodes();
    size_t last = nodes.size();  // a write to the result that is written back at once
    for (size_t n = node_ + 1; n < nodes.size(); ++n) {
      if (!nodes[n].mutates && !nodes[n].statistics) continue;
      if (!writes(nodes[n])) continue;
      if (last != nodes.size() || !is_written_back(n)) return true;
      last = ++n;
    }
    for (size_t n = last + 1; n < nodes.size(); ++n) {
      if (reads(nodes[n])) return true;
    }
    return last != nodes.size() && is_output(slot_);
  }

 private:
  bool is_part(int slot) const { return slot == slot_ || view_origin(tape_, slot).is_view_of(slot_); }
  bool is_output(int slot) const {
    const std::vector<int>& outputs = tape_.outputs();
    return std::find(outputs.begin(), outputs.end(), slot) != outputs.end();
  }

  /// With something else that has the same memory.
  bool leaves() const {
    const std::vector<int>& outputs = tape_.outputs();
    const auto part = [this](int slot) { return slot >= 0 && is_part(slot); };
    if (std::none_of(outputs.begin(), outputs.end(), part)) return false;
    return tape_.slots()[static_cast<size_t>(root_)].input ||
           std::any_of(outputs.begin(), outputs.end(),
                       [&](int slot) { return slot >= 0 && !is_part(slot) && memory_owner(tape_, slot) == root_; });
  }

  bool writes(const TapeNode& node) const {
    bool found = false;
    for (PyObject* written : written_arguments(node)) {
      for_each_slot(written, [&](int slot) { found = found || memory_owner(tape_, slot) == root_; });
    }
    return found;
  }

  bool reads(const TapeNode& node) const {
    bool found = false;
    const auto look = [&](int slot) { found = found || is_part(slot); };
    for_each_slot(node.args.get(), look);
    for_each_slot(node.kwargs.get(), look);
    return found;
  }

  /// `x[n] += y`: the result alone is written to, and then put where it is from.
  bool is_written_back(size_t n) const {
    const std::vector<TapeNode>& nodes = tape_.nodes();
    if (n + 1 >= nodes.size() || PyTuple_GET_SIZE(nodes[n].args.get()) == 0) return false;
    const TapeNode &write = nodes[n], &back = nodes[n + 1];
    PyObject *const from = nodes[node_].args.get(), *const to = back.args.get();
    if (back.name != "__setitem__" || PyTuple_GET_SIZE(to) != 3) return false;
    const auto slot_at = [](PyObject* args, Py_ssize_t i) { return slot_of(PyTuple_GET_ITEM(args, i)); };
    return slot_at(write.args.get(), 0) == slot_ && slot_at(to, 2) == slot_ && slot_at(to, 0) == slot_at(from, 0) &&
           slot_at(to, 1) >= 0 && slot_at(to, 1) == slot_at(from, 1);
  }

  const Tape& tape_;
  size_t node_;
  int slot_, root_;
};

}  // namespace

std::optional<size_t> hidden_view(const Tape& tape) {
  for (size_t n = 0; n < tape.nodes().size(); ++n) {
    if (takes_number(tape, tape.nodes()[n]) && HiddenView(tape, n).is_seen()) return n;
  }
  return {};
}

}  // namespace tatara::capture
