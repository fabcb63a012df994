// What a trace took as given and data decide: facts of symbols, and results of NumPy's. Each run looks at them as soon as they are there.
#include <algorithm>
#include <utility>

#include "capture/tape/node_operators.h"
#include "capture/tape/tape.h"

namespace tatara::capture {

bool is_as_recorded(const TapeNode& node, const std::vector<TapeSlot>& slots, const std::vector<Ref>& env) {
  const ErrorAside aside;
  bool same = true;
  for (const int output : node.outputs) {
    if (output < 0) continue;
    const TapeSlot& slot = slots[static_cast<size_t>(output)];
    PyObject* const value = env[static_cast<size_t>(output)].get();
    if (slot.number || !slot.sizes || !slot.symbolic_sizes.empty() || !slot.dtype || value == nullptr) continue;
    const Ref sizes = attr_or_null(value, "shape"), dtype = attr_or_null(value, "dtype");
    same = same && sizes && dtype && PyObject_RichCompareBool(sizes.get(), slot.sizes.get(), Py_EQ) == 1 &&
           PyObject_RichCompareBool(dtype.get(), slot.dtype.get(), Py_EQ) == 1;
  }
  forget_error();
  return same;
}

void Tape::collect_late_facts(const TraceSymbols& symbols) {
  made_.decisions = symbols.decisions();
  if (made_.decisions != nullptr) made_.surprises = made_.decisions->surprises;
  if (made_.symbols.empty()) return;
  size_t last = 0;
  for (const MadeSymbol& made : made_.symbols) last = std::max(last, made.node);
  for (size_t n = 0; n < last; ++n) made_.drawn = made_.drawn || varies(nodes_[n]);
  for (const Expr& fact : facts_) {
    const MadeSymbol* latest = nullptr;
    for (const MadeSymbol& made : made_.symbols) {
      if (fact.contains(symbols_[made.symbol]) && (latest == nullptr || made.node > latest->node)) latest = &made;
    }
    const auto guard = static_cast<size_t>(&fact - facts_.data());
    if (latest != nullptr)
      made_.facts.push_back({latest->node, ExprProgram(fact, symbols_), fact.str(), symbols.place_of_decision(guard)});
  }
}

namespace {
thread_local bool late_failure = false;
}

bool take_late_failure() { return std::exchange(late_failure, false); }

/// After a node has run. False with a Python error set: what data decide is other than the trace took it to be.
bool Tape::bind_made(size_t node, const std::vector<Ref>& env, std::span<int64_t> symbols) const {
  bool any = false;
  for (const MadeSymbol& made : made_.symbols) {
    if (made.node != node) continue;
    any = true;
    int64_t& value = symbols[made.symbol];
    if (!read_symbol(made.symbol, env, *TorchApi::get(), value)) return false;
    if (value < ranges_[made.symbol].lo || value > ranges_[made.symbol].hi) {
      late_failure = true;
      PyErr_SetString(PyExc_RuntimeError, "tatara: a number that data decide is beyond the ends of a graph's");
      return false;
    }
  }
  for (size_t i = 0; any && i < made_.facts.size(); ++i) {
    const LateFact& fact = made_.facts[i];
    if (fact.node != node || fact.program.try_evaluate(symbols).value_or(0) != 0) continue;
    late_failure = true;
    if (!fact.place.empty() && made_.decisions != nullptr) {
      made_.decisions->fell_otherwise(fact.place, made_.surprises);
    }
    PyErr_SetString(PyExc_RuntimeError, ("tatara: data decide that " + fact.text + " does not hold").c_str());
    return false;
  }
  return true;
}

bool falls_as_recorded(const Tape& tape, size_t node, const std::vector<Ref>& env) {
  const auto* call = std::get_if<NumpyOperation>(&tape.nodes_[node].kind);
  if (call == nullptr || call->decides.empty()) return true;
  bool same = !call->fell && is_as_recorded(tape.nodes_[node], tape.slots_, env);
  if (call->fell) {
    PyObject* const now = env[static_cast<size_t>(tape.nodes_[node].outputs.at(0))].get();
    same =
        now == call->fell.get() || (now != nullptr && PyLong_CheckExact(now) && PyLong_CheckExact(call->fell.get()) &&
                                    PyObject_RichCompareBool(now, call->fell.get(), Py_EQ) == 1);
  }
  if (same) return true;
  late_failure = true;
  if (tape.made_.decisions != nullptr) {
    tape.made_.decisions->fell_otherwise(call->decides, tape.made_.surprises);
  }
  PyErr_Format(PyExc_RuntimeError, "tatara: data decide the result of %s otherwise", tape.nodes_[node].name.c_str());
  return false;
}

}  // namespace tatara::capture
