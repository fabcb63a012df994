#include "capture/tape/used_history.h"

#include <algorithm>

#include "capture/host/package.h"
#include "capture/host/torch_api.h"
#include "capture/numbers/symbolic_int.h"
#include "capture/tape/node_operators.h"

namespace tatara::capture {
std::vector<bool> UsedHistory::nodes_of(const std::vector<int>& slots, size_t count) const {
  const std::vector<TapeNode>& all = tape_.nodes();
  std::vector<bool> nodes(all.size(), false), reached(tape_.slots().size(), false);
  for (const int slot : slots) reached[static_cast<size_t>(slot)] = true;
  for (size_t n = count; n-- > 0;) {
    const TapeNode& node = all[n];
    if (is_leaf_mark(node)) {
      reached[static_cast<size_t>(node.outputs[0])] = false;  // histories begin here
      continue;
    }
    const GradientPass* pass = engine_pass(node);
    if (!node.grad || (pass != nullptr && !pass->creates_graph)) continue;
    const bool any = std::any_of(node.outputs.begin(), node.outputs.end(), [&](int slot) {
      return slot >= 0 && reached[static_cast<size_t>(slot)] && needs_[static_cast<size_t>(slot)] &&
             !tape_.slots()[static_cast<size_t>(slot)].input;
    });
    if (!any) continue;
    nodes[n] = true;
    const auto mark = [&](int slot) { reached[static_cast<size_t>(slot)] = true; };
    for_each_slot(node.args.get(), mark);
    for_each_slot(node.kwargs.get(), mark);
  }
  return nodes;
}

/// Whether the host's node for it keeps tensors: asked of the host, for operands of the same kinds. What cannot be asked does.
bool UsedHistory::saves(size_t n) {
  saves_.resize(tape_.nodes().size());
  if (saves_[n]) return *saves_[n];
  const TapeNode& node = tape_.nodes()[n];
  bool answer = true;
  if (node.func && is_operator_call(node) && !any_operator(node, &OpTraits::always_saves)) {
    const Ref ask = find_package_function(PackageFunction::kSaves);
    if (!ask) forget_error();
    bool plain = static_cast<bool>(ask);
    const auto operand = [&](PyObject* o) -> Ref {
      const int slot = slot_of(o);
      if (slot < 0) {
        plain = plain && !is_size_ref(o);
        return Ref::borrow(o);
      }
      const TapeSlot& info = tape_.slots()[static_cast<size_t>(slot)];
      plain = plain && info.sizes && info.strides && info.dtype && !info.number;
      if (!plain) return Ref::borrow(Py_None);
      PyObject* needs = needs_[static_cast<size_t>(slot)] ? Py_True : Py_False;
      return call_package<PackageFunction::kStandIn>(info.sizes.get(), info.strides.get(), info.dtype.get(), needs);
    };
    const Ref args = map_structure(node.args.get(), operand);
    const Ref kwargs = node.kwargs ? map_structure(node.kwargs.get(), operand) : Ref::borrow(Py_None);
    if (plain && args && kwargs) {
      const Ref found =
          Ref::steal(PyObject_CallFunctionObjArgs(ask.get(), node.func.get(), args.get(), kwargs.get(), nullptr));
      answer = found.get() != Py_False;
    }
    forget_error();
  }
  saves_[n] = answer;
  return answer;
}

int UsedHistory::first_used(const std::vector<int>& slots) {
  const std::vector<TapeNode>& all = tape_.nodes();
  const std::vector<bool> mine = nodes_of(slots, all.size());
  for (size_t n = 0; n < all.size(); ++n) {
    if (!frees_history(all[n])) continue;
    auto [found, fresh] = passes_.try_emplace(n);
    if (fresh) {
      std::vector<int> roots;
      for_each_slot(PyTuple_GET_ITEM(all[n].args.get(), 0), [&](int slot) { roots.push_back(slot); });
      found->second = nodes_of(roots, n);
    }
    const auto look = [&](auto&& saved) {
      for (size_t i = n; i-- > 0;) {
        if (mine[i] && found->second[i] && saved(i)) return static_cast<int>(i);
      }
      return -1;
    };
    // Asking torch costs imports the first time.
    int used = look([&](size_t i) { return any_operator(all[i], &OpTraits::always_saves); });
    if (used < 0) used = look([&](size_t i) { return saves(i); });
    if (used >= 0) return used;
  }
  return -1;
}

}  // namespace tatara::capture
