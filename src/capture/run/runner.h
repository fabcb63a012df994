// What the rest of capture needs of the runners of graphs: how an entry gets its own, and what a report wants of it.
#pragma once

#include <vector>

#include "capture/entries/owner.h"

namespace tatara {
struct CompileOptions;
}

namespace tatara::capture {

class GrowingGraph;

/// A trace that ends, for who makes a runner of its tape.
struct EndingTrace {
  const Tape& tape;       ///< the open one
  GrowingGraph& growing;  ///< its graph, as far as it was needed
  bool ran;               ///< the tensors of this call are there
};

/// Makes the runner of a new entry (graph_backend.cpp): compiles its tape, or what it can of it, or falls back to running it as
/// it is. False with a Python error set (a user's backend raised).
bool attach_runner(Entry& entry, TraceOwner& owner, TorchApi& api, const EndingTrace& trace);
/// After attach_compiled() has found a call that the compiler refuses: torch runs such calls, and what stands before, between
/// and behind them is compiled where that is worth it. False (no error set) where the tape cannot be cut there, or has not run.
bool attach_split(Entry& entry, const CompileOptions& options, TorchApi& api, const EndingTrace& trace);
/// The same for a tape with NumPy's calls among torch's: each kind is compiled by itself.
void attach_mixed(Entry& entry, const CompileOptions& options, TorchApi& api, const EndingTrace& trace);
/// Whether the tape is one that attach_split() can cut.
bool can_split(const Tape& tape);
/// Runs a tape as it stands.
std::unique_ptr<GraphRunner> make_eager_runner();
/// Compiles the tape and sets entry.runner; false (no error set) when the tape is to run as it is, with
/// entry.report.fallback_reason.
bool attach_compiled(Entry& entry, const CompileOptions& options, TorchApi& api, GrowingGraph& growing);
/// Sets entry.report's refused call and reason where the compiler will refuse one, by converting and differentiating alone.
void find_refusal(Entry& entry, const CompileOptions& options, TorchApi& api);
/// Compiles what can be compiled of a tape of NumPy calls; sets entry.runner. False (no error set) with
/// entry.report.fallback_reason when NumPy is to run all of it.
bool attach_numpy(Entry& entry, const CompileOptions& options, TorchApi& api);

/// What this thread's compilations keep beyond what runs need.
enum class Explaining : int {
  kOff,
  kKeep,     // all texts and the lowered graph
  kMeasure,  // also run each new graph a few times to measure it
};
Explaining explaining();
/// Returns what was set before.
Explaining set_explaining(Explaining level);
/// Runs a new entry's graph on the inputs it was traced with and drops the results, so that whoever listens to the
/// history sees its steps. Inputs that the graph writes are copied first, and the host's random state is put back.
void measure_entry(const Entry& entry, const std::vector<PyObject*>& objects, TorchApi& api);

/// The program's hooks on a leaf: a tuple of two tuples, those that get its gradient and those that get the leaf when it has
/// been added. Null without any.
Ref gradient_hooks(PyObject* tensor);

}  // namespace tatara::capture
