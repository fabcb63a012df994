#include "capture/graph/early_calls.h"

#include <algorithm>
#include <set>
#include <vector>

#include "capture/graph/eager_cost.h"
#include "capture/numbers/symbolic_int.h"
#include "capture/tape/node_kinds.h"
#include "capture/tape/node_operators.h"
#include "capture/tape/transaction.h"
#include "capture/tape/view_origins.h"

namespace tatara::capture {
namespace {

constexpr size_t kMostCalls = 64;
constexpr double kMostSeconds = 12e-6;  // of one, in eager: torch runs them one by one, where kernels would fuse them

/// Finds the calls that may come first.
class EarlyCalls {
 public:
  explicit EarlyCalls(const Tape& tape) : tape_(tape), early_(tape.nodes().size()) {
    const std::vector<TapeNode>& nodes = tape.nodes();
    makers_.assign(tape.slots().size(), -1);
    for (size_t n = 0; n < nodes.size(); ++n) {
      for (const int slot : nodes[n].outputs) {
        if (slot >= 0 && makers_[static_cast<size_t>(slot)] < 0)
          makers_[static_cast<size_t>(slot)] = static_cast<int>(n);
      }
      if (!nodes[n].mutates && !nodes[n].statistics) continue;
      for (PyObject* argument : written_arguments(nodes[n])) {
        for_each_slot(argument, [&](int slot) { written_.insert(memory_owner(tape_, slot)); });
      }
    }
  }

  /// By node. What a call decides may stand beside what was decided before it: so these are the first ones.
  const std::vector<bool>& find() {
    std::set<size_t> deciding;
    for (const Tape::MadeSymbol& made : tape_.made_symbols()) {
      if (!made.condition || falls_beside_gpu(made.node)) deciding.insert(made.node);
    }
    for (const size_t n : deciding) {
      std::vector<size_t> calls;
      if (!add(n, calls) || count_ + calls.size() > kMostCalls) break;
      for (const size_t call : calls) early_[call] = true;
      count_ += calls.size();
    }
    return early_;
  }

 private:
  std::string device_of(int slot) const {
    const Ref& device = tape_.slots()[static_cast<size_t>(slot)].device;
    return device ? text_of(attr(device.get(), "type").get()) : std::string();
  }

  /// Whether the condition is one of the CPU, and others work on a GPU: their graph cannot look at it.
  bool falls_beside_gpu(size_t n) const {
    const int operand = slot_of(PyTuple_GET_ITEM(tape_.nodes()[n].args.get(), 0));
    if (operand < 0 || device_of(operand) != "cpu") return false;
    for (size_t slot = 0; slot < tape_.slots().size(); ++slot) {
      if (device_of(static_cast<int>(slot)) == "cuda") return true;
    }
    return false;
  }

  bool made_on(const TapeNode& node, const char* device) const {
    return !node.outputs.empty() && std::all_of(node.outputs.begin(), node.outputs.end(),
                                                [&](int slot) { return slot >= 0 && device_of(slot) == device; });
  }

  /// Whether the call draws from the CPU's generator and does nothing else to generators.
  bool draws_here(const TapeNode& node) const {
    return made_on(node, "cpu") && any_operator(node, [](const OpDef& op) { return op.draws(); }) &&
           !any_operator(node, [](const OpDef& op) { return op.of_generator() || op.traits.varies; });
  }

  /// Draws stay in order: those before come first, too. A GPU has a generator of its own.
  bool draws_before(size_t n, std::vector<size_t>& calls) const {
    for (size_t before = 0; before < n; ++before) {
      const TapeNode& node = tape_.nodes()[before];
      if (varies(node) && !(made_on(node, "cuda") && !node.has_generator()) && !add(before, calls)) return false;
    }
    return true;
  }

  /// The call and what leads to it, as far as that is not chosen yet.
  bool add(size_t n, std::vector<size_t>& calls) const {
    if (early_[n] || std::find(calls.begin(), calls.end(), n) != calls.end()) return true;
    const TapeNode& node = tape_.nodes()[n];
    calls.push_back(n);
    if (calls.size() > kMostCalls || !may_come_first(node)) return false;
    bool fine = !varies(node) || draws_before(n, calls);
    const auto lead = [&](int slot) {
      const int maker = makers_[static_cast<size_t>(slot)];
      const TapeSlot& info = tape_.slots()[static_cast<size_t>(slot)];
      fine = fine && !info.requires_grad && !written_.contains(memory_owner(tape_, slot)) &&
             tape_.reshaped(slot) == nullptr && (info.input || maker >= 0) &&
             (info.input || add(static_cast<size_t>(maker), calls));
    };
    for_each_slot(node.args.get(), lead);
    for_each_slot(node.kwargs.get(), lead);
    return fine && sizes_are_there(node.args.get(), calls) && sizes_are_there(node.kwargs.get(), calls);
  }

  bool may_come_first(const TapeNode& node) const {
    const bool plain = is_operator_call(node) && node.func && node.level == 0 && !node.has_generator() &&
                       !node.mutates && !node.statistics && !is_numpy_operation(node) && !is_leaf_mark(node) &&
                       engine_pass(node) == nullptr && region_mark(node) == nullptr &&
                       (!varies(node) || draws_here(node));
    if (!plain || (is_dispatcher_operator(node.func.get()) && known_name(node).empty())) return false;
    if (seconds_in_eager(tape_, node) > kMostSeconds) return false;
    return std::none_of(node.outputs.begin(), node.outputs.end(), [this](int slot) {
      return slot >= 0 && tape_.slots()[static_cast<size_t>(slot)].requires_grad;
    });
  }

  /// Whether what data decide of the sizes among the arguments is known by then.
  bool sizes_are_there(PyObject* arguments, const std::vector<size_t>& calls) const {
    bool fine = true;
    if (arguments == nullptr) return true;
    map_structure(arguments, [&](PyObject* o) {
      if (!is_size_ref(o)) return Ref::borrow(o);
      const Expr size = size_ref_expr(o);
      for (const Tape::MadeSymbol& made : tape_.made_symbols()) {
        const bool there = early_[made.node] || std::find(calls.begin(), calls.end(), made.node) != calls.end();
        fine = fine && (there || !size.contains(tape_.symbols()[made.symbol]));
      }
      return Ref::borrow(o);
    });
    return fine;
  }

  const Tape& tape_;
  std::vector<int> makers_;
  std::set<int> written_;
  std::vector<bool> early_;
  size_t count_ = 0;
};

}  // namespace

size_t run_early(Tape& tape, size_t& call) {
  if (tape.has_regions() || tape.made_.symbols.empty()) return 0;
  const std::vector<bool> early = EarlyCalls(tape).find();
  const auto count = static_cast<size_t>(std::count(early.begin(), early.end(), true));
  if (count == 0) return 0;
  std::vector<size_t> place(early.size());
  std::vector<TapeNode> nodes(early.size());
  size_t first = 0, later = count;
  for (size_t n = 0; n < early.size(); ++n) {
    place[n] = early[n] ? first++ : later++;
    nodes[place[n]] = std::move(tape.nodes_[n]);
  }
  tape.nodes_ = std::move(nodes);
  call = place[call];
  size_t last = 0;
  for (Tape::MadeSymbol& made : tape.made_.symbols) {
    made.node = place[made.node];
    last = std::max(last, made.node);
  }
  tape.made_.drawn = false;
  for (size_t n = 0; n < last; ++n) tape.made_.drawn = tape.made_.drawn || varies(tape.nodes_[n]);
  for (Tape::LateFact& fact : tape.made_.facts) fact.node = place[fact.node];
  for (auto& [slot, maker] : tape.makers_) maker = place[maker];
  for (size_t& n : tape.check_nodes_) n = place[n];
  tape.set_outputs(tape.outputs_);
  return count;
}

}  // namespace tatara::capture
