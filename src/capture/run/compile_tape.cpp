// Compiles a tape.
#include <algorithm>
#include <chrono>
#include <memory>

#include "capture/entries/stats.h"
#include "capture/graph/graph_from_tape.h"
#include "capture/host/errors.h"
#include "capture/run/compiled_part.h"
#include "capture/run/compiled_runner.h"
#include "capture/run/report_details.h"
#include "capture/run/runner.h"
#include "capture/run/training.h"
#include "compiler/compiler.h"
#include "support/error.h"
#include "support/log.h"
#include "transforms/autodiff.h"
#include "transforms/passes.h"
#include "transforms/stages.h"

namespace tatara::capture {

namespace {

/// What compilation decided by the sizes of the present call holds for others only under the same decisions.
void add_facts(Entry& entry, ExprContext& ctx, std::vector<ExprProgram>& late) {
  std::vector<Expr> symbols;
  for (const Expr symbol : entry.tape->symbols()) symbols.push_back(ctx.import(symbol));
  for (const Expr fact : ctx.guards()) {
    if (entry.tape->is_made(fact, ctx)) {
      late.emplace_back(fact, symbols);
    } else {
      entry.guards.facts.push_back({ExprProgram(fact, symbols), fact.str()});
    }
  }
  ctx.note_checked_guards();
}

/// Loops are nodes where that compiles.
CompileResult compile_rolled(const Graph& graph, const CompileOptions& options) {
  try {
    const Graph rolled = roll_loops(graph, false, options.passes);
    if (rolled.num_nodes() < graph.num_nodes()) return compile_graph(rolled, options);
  } catch (const Unsupported& error) {
    TATARA_LOG(kGraph, "a loop is written out: ", error.what());
  }
  return compile_graph(graph, options);
}

void count_compiled(const CompileResult& compiled) {
  stats().kernels_compiled += static_cast<uint64_t>(compiled.kernels_compiled);
  stats().cache_hits += static_cast<uint64_t>(compiled.cache_hits);
}

/// The same with another graph, of which values have other numbers.
TapeGraph with_graph(const TapeGraph& made, Graph graph) {
  return {std::move(graph),
          made.inputs,
          made.constants,
          made.outputs,
          made.used_up,
          made.leaves,
          made.training,
          made.host_nodes,
          made.late_nodes,
          {},
          {}};
}

/// The same with gradients.
CompiledTraining train_rolled(TapeGraph made, const std::shared_ptr<const Tape>& tape, const CompileOptions& options) {
  try {
    std::vector<std::pair<int, int>> loops;
    Graph graph = roll_loops(made.graph, true, options.passes, &loops);
    if (!loops.empty()) {
      TapeGraph rolled = with_graph(made, std::move(graph));
      rolled.loops = std::move(loops);
      return compile_training(std::move(rolled), tape, options);
    }
  } catch (const Unsupported& error) {
    TATARA_LOG(kGraph, "a loop is written out: ", error.what());
  }
  return compile_training(std::move(made), tape, options);
}

/// Forward and backward plans; the report shows all of them.
CompiledPart compiled_for_training(Entry& entry, TapeGraph made, const std::shared_ptr<const Tape>& tape,
                                   const CompileOptions& options) {
  const std::shared_ptr<ExprContext> ctx = made.graph.ctx_ptr();
  CompiledTraining training = train_rolled(std::move(made), tape, options);
  for (const CompileResult& compiled : training.results) {
    entry.report.lowered_text += compiled.lowered_text;
    count_compiled(compiled);
  }
  std::vector<ExprProgram> late;
  add_facts(entry, *ctx, late);
  return {std::move(training.runner), training.results.empty() ? Ref() : details_of(training.results.front()),
          std::move(late)};
}

}  // namespace

std::vector<bool> inputs_needing_grad(const TapeGraph& made, const Tape& tape) {
  std::vector<bool> needs;
  for (const int slot : made.inputs) {
    needs.push_back(slot >= 0 && tape.slots()[static_cast<size_t>(slot)].requires_grad);
    for (const TapeNode& node : tape.nodes()) {
      if (is_leaf_mark(node) && node.outputs[0] == slot) needs.back() = true;
    }
  }
  return needs;
}

CompiledPart compile_part(Entry& entry, TapeGraph made, const std::shared_ptr<const Tape>& tape,
                          const CompileOptions& options) {
  const bool whole = follows_histories(*tape);
  std::vector<int> used_up = std::move(made.used_up), leaves = std::move(made.leaves);
  std::vector<size_t> late = std::move(made.late_nodes);
  CompiledPart part;
  if (whole ? made.training : is_training_tape(*tape)) {
    TATARA_LOG(kGraph, "to be differentiated: ", entry.report.graph_text);
    part = compiled_for_training(entry, std::move(made), tape, options);
  } else {
    CompileResult compiled = compile_rolled(made.graph, options);
    entry.report.lowered_text += compiled.lowered_text;
    add_facts(entry, made.graph.ctx(), part.facts);
    count_compiled(compiled);
    part.details = details_of(compiled);
    part.runner = std::make_unique<CompiledRunner>(std::move(compiled.executable), std::move(made), *tape,
                                                   options.keep_outputs_mb);
  }
  if (whole) part.runner = make_step_runner(std::move(part.runner), *tape, std::move(used_up), std::move(leaves));
  if (!late.empty()) part.runner = make_late_runner(std::move(part.runner), std::move(late));
  return part;
}

namespace {

/// Throws where the graph has no gradients.
void differentiate(const Graph& graph, const std::vector<bool>& needs, const CompileOptions& options) {
  for (const GraphStage& stage : split_stages(graph, needs)) {
    static_cast<void>(joint_graph(differentiable_form(stage.graph, stage.needs, options.passes), stage.needs));
  }
}

}  // namespace

void find_refusal(Entry& entry, const CompileOptions& options, TorchApi& api) {
  const Tape& tape = *entry.tape;
  try {
    const TapeGraph made = build_graph(tape, api, options.passes);
    if (!is_training_tape(tape) || follows_histories(tape)) return;
    const std::vector<bool> needs = inputs_needing_grad(made, tape);
    try {
      const Graph rolled = roll_loops(made.graph, true, options.passes);
      if (rolled.num_nodes() < made.graph.num_nodes()) {
        differentiate(rolled, needs, options);
        return;
      }
    } catch (const Error&) {
      forget_error();  // which call it is, the turns written out say
    }
    differentiate(made.graph, needs, options);
  } catch (const Error& error) {
    forget_error();
    if (error.location().call < 0) return;  // the compilation says it
    entry.report.fallback_reason = error.what();
    entry.report.refused_call = error.location().call;
  }
}

/// Of a tape that may be cut, the end of its last level of torch.func: what is refused of all of it, torch does there. -1: none, or the
/// tape writes, so that what shares memory with what would be seen.
static int last_step(const Tape& tape) {
  const std::vector<TapeNode>& nodes = tape.nodes();
  if (!can_split(tape) || std::any_of(nodes.begin(), nodes.end(), [](const TapeNode& node) { return node.mutates; }))
    return -1;
  const auto is_step = [](const TapeNode& node) { return transform_step(node) != nullptr; };
  return static_cast<int>(nodes.rend() - std::find_if(nodes.rbegin(), nodes.rend(), is_step)) - 1;
}

/// Nodes of a report's graph: nobody reads more, and a loop of many turns has them.
constexpr size_t kMostPrinted = 10000;

bool attach_compiled(Entry& entry, const CompileOptions& options, TorchApi& api, GrowingGraph& growing) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Tape::MadeSymbol>& made_symbols = entry.tape->made_symbols();
  const auto decides = std::find_if(made_symbols.begin(), made_symbols.end(),
                                    [](const Tape::MadeSymbol& made) { return !made.condition; });
  if (decides != made_symbols.end()) {
    // What comes behind such a call is compiled for sizes that are there once it has run.
    entry.report.refused_call = static_cast<int>(decides->node);
    entry.report.fallback_reason = kDataDecide;
    ++stats().fallbacks;
    return false;
  }
  try {
    TapeGraph made = growing.finish(entry.tape, api, options.passes);
    entry.report.graph_text = print_graph(made.graph, true, option_text(Option::kDump).empty() ? kMostPrinted : 0);
    CompiledPart part = compile_part(entry, std::move(made), entry.tape, options);
    entry.report.details = std::move(part.details);
    entry.runner = std::move(part.runner);
  } catch (const std::exception& error) {
    forget_error();
    if (!options.fallback) {
      raise_error(error);
      return false;
    }
    entry.report.fallback_reason = error.what();
    // Eager ran these calls: an error is one of ours, and costs the call where it stands.
    if (const auto* refused = dynamic_cast<const Error*>(&error)) {
      entry.report.refused_call = refused->location().call;
      if (entry.report.refused_call < 0) entry.report.refused_call = last_step(*entry.tape);
      entry.report.several_devices = dynamic_cast<const SeveralDevices*>(refused) != nullptr;
    }
    ++stats().fallbacks;
  }
  entry.report.compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return entry.runner != nullptr;
}

}  // namespace tatara::capture
