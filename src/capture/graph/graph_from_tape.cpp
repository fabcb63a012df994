#include "capture/graph/graph_from_tape.h"

#include <algorithm>

#include "capture/graph/tape_converter.h"

namespace tatara::capture {
namespace {

/// A context of its own: the trace's knows facts that were learned after the cut of a graph break, and are no guards.
std::shared_ptr<ExprContext> graph_context(const Tape& tape) {
  auto ctx = std::make_shared<ExprContext>();
  for (size_t i = 0; i < tape.symbols().size(); ++i) {
    const Expr symbol = tape.symbols()[i];
    ExprContext& trace = symbol.context();
    ctx->symbol(trace.symbol_name(symbol), tape.ranges()[i], tape.hints()[i]);
  }
  for (const Expr fact : tape.facts()) ctx->assume(ctx->import(fact));
  return ctx;
}

}  // namespace

bool has_leaves_or_passes(const Tape& tape) {
  return std::any_of(tape.nodes().begin(), tape.nodes().end(),
                     [](const TapeNode& node) { return node.backward || node.leaf; });
}

std::vector<std::optional<GradientLayout>> gradient_layouts(const Tape& tape, TorchApi& api, const TapeNode& pass) {
  return TapeConverter(tape, api, graph_context(tape)).probe(pass);
}

bool is_training_tape(const Tape& tape) {
  const bool needs = std::any_of(tape.slots().begin(), tape.slots().end(),
                                 [](const TapeSlot& slot) { return slot.input && slot.requires_grad; });
  const bool made = std::any_of(tape.nodes().begin(), tape.nodes().end(), [](const TapeNode& n) { return n.leaf; });
  return (needs || made) &&
         std::any_of(tape.nodes().begin(), tape.nodes().end(), [](const TapeNode& n) { return n.grad; });
}

struct LiveInference::Impl {
  TorchApi& api;
  std::shared_ptr<ExprContext> ctx;
  std::unique_ptr<TapeConverter> converter;
};

LiveInference::LiveInference(TorchApi& api, const TraceSymbols& symbols)
    : impl_(new Impl{api, symbols.ctx_ptr(), nullptr}) {}
LiveInference::~LiveInference() = default;

std::vector<InferredTensor> LiveInference::infer(const Tape& tape, const TapeNode& node) {
  if (impl_->converter == nullptr) impl_->converter = std::make_unique<TapeConverter>(tape, impl_->api, impl_->ctx);
  return impl_->converter->infer(node);
}

std::vector<int64_t> LiveInference::versions() const {
  return impl_->converter == nullptr ? std::vector<int64_t>() : impl_->converter->versions();
}

void LiveInference::bind(int slot, int32_t ref) { impl_->converter->bind(slot, ref); }

TapeGraph build_graph(const Tape& tape, TorchApi& api, const PassOptions& passes) {
  return TapeConverter(tape, api, graph_context(tape)).run(passes);
}

}  // namespace tatara::capture
