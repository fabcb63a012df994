// What a trace learns from a call that the compiler refuses: later ones break the graph there, where the parts are worth it.
#include <algorithm>

#include "capture/entries/stats.h"
#include "capture/graph/eager_cost.h"
#include "capture/run/runner.h"
#include "capture/tape/tape_counts.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"
#include "compiler/compiler.h"

namespace tatara::capture {
namespace {

/// Whether the graph is to be split at each call like this one: what compiles then costs more in eager than the parts need to
/// begin and end (docs/decisions/026-split-graphs.md has the figures). An instruction of the root with such a call in it runs
/// for real as a whole, so what it calls counts as nothing. `instructions`: the first node of each.
bool worth_splitting(const Tape& tape, const TapeNode& refused, const std::vector<size_t>& instructions) {
  const bool training = is_training_tape(tape);
  const double part = training ? 130e-6 : 40e-6;
  const std::vector<TapeNode>& nodes = tape.nodes();
  double gain = 0;
  int parts = 1;
  for (size_t i = 0, n = 0; n < nodes.size(); ++i) {
    const size_t end = i < instructions.size() ? std::min(instructions[i], nodes.size()) : nodes.size();
    double seconds = 0;
    bool refuses = false;
    for (; n < end; ++n) {
      seconds += seconds_in_eager(tape, nodes[n]);
      refuses = refuses || (nodes[n].name == refused.name && nodes[n].location.line == refused.location.line &&
                            nodes[n].location.file == refused.location.file);
    }
    if (refuses) {
      ++parts;
    } else {
      gain += training ? 2.5 * seconds : seconds;
    }
  }
  return gain >= parts * part;
}

}  // namespace

/// After a compilation that was refused before the tape had run.
void TraceEnds::split_late(Entry& entry) {
  const CompileOptions options = CompileOptions::resolve(owner_.options);
  bool split = false;
  if (!cancellable([&] { split = attach_split(entry, options, api_, {trace_->tape, trace_->graph, true}); }))
    cut_ = true;
  if (split || cut_ || !learn_refusal(entry)) return;
  entry.to_split = true;
  --stats().fallbacks;
}

/// An explanation is of one call: what later calls would learn from it is found before it runs.
void TraceEnds::refuse_ahead(Entry& entry) {
  if (owner_.fullgraph || owner_.backend || owner_.eager_backend || !entry.tape || !can_take_back()) return;
  if (is_numpy_tape(*entry.tape) || is_mixed_tape(*entry.tape)) return;
  settle_symbols();
  const CompileOptions options = CompileOptions::resolve(owner_.options);
  if (!cancellable([&] { find_refusal(entry, options, api_); })) cut_ = true;
  entry.to_split = !cut_ && !can_split(*entry.tape) && learn_refusal(entry);
  entry.report = {};
}

bool TraceEnds::learn_refusal(const Entry& entry) {
  const int call = entry.report.refused_call;
  if (call < 0) return false;
  const TapeNode& node = entry.tape->nodes()[static_cast<size_t>(call)];
  if (!worth_splitting(*entry.tape, node, trace_->instructions)) return false;
  return owner_.refused.add(node.name, node.location.file, node.location.line, entry.report.fallback_reason);
}

}  // namespace tatara::capture
