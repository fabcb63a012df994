#include "capture/graph/tape_conjugates.h"

#include <algorithm>

#include "capture/tape/node_operators.h"
#include "capture/tape/view_origins.h"
#include "ops/views/conjugate_views.h"

namespace tatara::capture {
namespace {

/// Whether the slot is of the memory of this one: the tensor itself, a view of it, also by detach().
bool is_made_of(const Tape& tape, int slot, int of) {
  while (slot >= 0 && slot != of) {
    const TapeNode* const made = tape.makes(slot) ? tape.maker(slot) : nullptr;
    if (made == nullptr || !may_be_view(tape, *made) || PyTuple_GET_SIZE(made->args.get()) == 0) return false;
    const int operand = slot_of(PyTuple_GET_ITEM(made->args.get(), 0));
    if (operand == slot) return false;
    slot = operand;
  }
  return slot == of;
}

/// By slot: whether it may be of the memory of this one, where levels of transforms wrap and unwrap what goes through them.
std::vector<bool> may_be_made_of(const Tape& tape, int of) {
  std::vector<bool> found(tape.slots().size());
  found[static_cast<size_t>(of)] = true;
  for (const TapeNode& node : tape.nodes()) {
    if (is_operator_call(node) && !may_be_view(tape, node)) continue;
    bool reads = false;
    const auto look = [&](int slot) { reads = reads || found[static_cast<size_t>(slot)]; };
    for_each_slot(node.args.get(), look);
    for_each_slot(node.kwargs.get(), look);
    for (const int slot : node.outputs) {
      if (reads && slot >= 0) found[static_cast<size_t>(slot)] = true;
    }
  }
  return found;
}

/// Whether the program may see the view, or what it is a view of may change while it is there. `whole`: the tape is, and its
/// results are known.
bool is_seen(const TapeConversion& c, const TapeNode& node, int operand, bool whole) {
  const Tape& tape = *c.tape;
  const int view = node.outputs[0];
  const std::vector<int> results = whole ? computed_outputs(tape) : std::vector<int>();
  const std::vector<bool> through = tape.has_transforms() ? may_be_made_of(tape, view) : std::vector<bool>();
  const auto shows = [&](int slot) {
    return through.empty() ? is_made_of(tape, slot, view) : slot >= 0 && through[static_cast<size_t>(slot)];
  };
  if (std::any_of(results.begin(), results.end(), shows)) return true;
  const int memory = memory_owner(tape, operand), own = memory_owner(tape, view);
  for (const TapeNode& other : tape.nodes()) {
    if (resolves_nothing(other)) continue;
    bool reads = false, meets = false;
    const auto look = [&](int slot) {
      reads = reads || shows(slot);
      const int met = memory_owner(tape, slot);
      meets = meets || met == memory || met == own;
    };
    for_each_slot(other.args.get(), look);
    if (other.kwargs) for_each_slot(other.kwargs.get(), look);
    const bool asks = &other != &node && (other.name == "resolve_conj" || any_operator(other, refuses_conjugates));
    if (reads && asks) return true;
    if (other.mutates && (meets || !through.empty()) && &other > &node)
      return true;  // what was written before, the view has
  }
  return false;
}

}  // namespace

bool resolves_nothing(const TapeNode& node) {
  if (node.outputs.size() != 1 || PyTuple_GET_SIZE(node.args.get()) != 1) return false;
  if (slot_of(PyTuple_GET_ITEM(node.args.get(), 0)) != node.outputs[0]) return false;
  return node.name == "resolve_conj" || any_operator(node, resolves_negations);
}

bool is_conjugate_seen(const TapeConversion& c, const TapeNode& node) {
  return is_seen(c, node, slot_of(PyTuple_GET_ITEM(node.args.get(), 0)), true);
}

std::optional<ValueId> conjugated_inside(TapeConversion& c, const TapeNode& node, bool whole) {
  if (node.outputs.size() != 1 || node.outputs[0] < 0 || PyTuple_GET_SIZE(node.args.get()) == 0) return std::nullopt;
  const int operand = slot_of(PyTuple_GET_ITEM(node.args.get(), 0));
  if (operand < 0 || c.ref(operand) < 0 || !is_complex(c.fz.type(c.ref(operand)).dtype)) return std::nullopt;
  if (node.name == "resolve_conj" || !any_operator(node, conjugates_lazily)) return std::nullopt;
  if (is_seen(c, node, operand, whole)) return std::nullopt;
  GraphBuilder& b = c.builder;
  ValueId value = b.unary("conj_complex", c.fz.read(c.ref(operand)));
  const TensorType wanted = c.slot_type(node.outputs[0]);
  const int64_t rank = wanted.dim();
  if (any_operator(node, swaps_and_conjugates)) {
    if (rank < 2) return std::nullopt;
    std::vector<int64_t> dims;
    for (int64_t i = 0; i < rank; ++i) dims.push_back(i);
    std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
    value = b.permute(value, dims);
  }
  const TensorType& made = b.type(value);
  if (made.sizes != wanted.sizes || made.strides != wanted.strides) return std::nullopt;
  return value;
}

}  // namespace tatara::capture
