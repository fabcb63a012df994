#include "capture/graph/graph_from_tape.h"

#include <algorithm>

#include "capture/graph/tape_converter.h"

namespace tatara::capture {
namespace {

/// Tells the context the tape's symbols and facts from these on.
void add_facts(ExprContext& ctx, const Tape& tape, size_t first_symbol, size_t first_fact) {
  for (size_t i = first_symbol; i < tape.symbols().size(); ++i) {
    const Expr symbol = tape.symbols()[i];
    ctx.symbol(symbol.context().symbol_name(symbol), tape.ranges()[i], tape.hints()[i]);
  }
  for (size_t i = first_fact; i < tape.facts().size(); ++i) ctx.assume(ctx.import(tape.facts()[i]));
}

/// A context of its own: the trace's knows facts that were learned after the cut of a graph break, and are no guards.
std::shared_ptr<ExprContext> graph_context(const Tape& tape) {
  auto ctx = std::make_shared<ExprContext>();
  add_facts(*ctx, tape, 0, 0);
  return ctx;
}

}  // namespace

bool follows_histories(const Tape& tape) {
  return std::any_of(tape.nodes().begin(), tape.nodes().end(),
                     [](const TapeNode& node) { return engine_pass(node) != nullptr || is_leaf_mark(node); }) ||
         std::any_of(tape.slots().begin(), tape.slots().end(), [](const TapeSlot& slot) { return bool(slot.spoiled); });
}

bool is_training_tape(const Tape& tape) {
  const auto& nodes = tape.nodes();
  // By slot: what may have a history, with views made beside gradients, since what is computed from one may; and what lies in the same
  // memory without one, and without its count of writes.
  std::vector<bool> needs, shares(tape.slots().size(), false);
  for (const TapeSlot& slot : tape.slots()) needs.push_back(slot.input && slot.requires_grad);
  const bool made = std::any_of(nodes.begin(), nodes.end(), is_leaf_mark);
  if (!made && std::none_of(needs.begin(), needs.end(), [](bool each) { return each; })) return false;
  const bool plain = !made && std::all_of(nodes.begin(), nodes.end(), is_operator_call);
  return std::any_of(nodes.begin(), nodes.end(), [&](const TapeNode& node) {
    if (!plain || node.level != 0) return node.grad;
    bool reads = false, shared = false;
    const auto look = [&](int slot) {
      reads = reads || needs[static_cast<size_t>(slot)];
      shared = shared || shares[static_cast<size_t>(slot)];
    };
    for_each_slot(node.args.get(), look);
    if (node.kwargs) for_each_slot(node.kwargs.get(), look);
    const bool detached = detaches(node);
    const auto in_shared = [&](int output) { return output >= 0 && shares[static_cast<size_t>(output)]; };
    if (shared && node.mutates &&
        (node.outputs.empty() || std::any_of(node.outputs.begin(), node.outputs.end(), in_shared))) {
      return node.grad;
    }
    if (!reads && !shared) return false;
    if (detached && reads && is_counted(node)) return false;
    const bool view = detached || ((shared || !node.grad) && may_be_view(tape, node));
    for (const int output : node.outputs) {
      if (view && output >= 0) (reads && !detached ? needs : shares)[static_cast<size_t>(output)] = true;
    }
    return node.grad && reads && !detached;
  });
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

std::vector<NumberWithin> LiveInference::bounds() const {
  return impl_->converter == nullptr ? std::vector<NumberWithin>() : impl_->converter->bounds();
}

std::vector<int64_t> LiveInference::versions() const {
  return impl_->converter == nullptr ? std::vector<int64_t>() : impl_->converter->versions();
}

void LiveInference::bind(int slot, int32_t ref) { impl_->converter->bind(slot, ref); }

void LiveInference::forget(int slot) {
  if (impl_->converter != nullptr) impl_->converter->forget(slot);
}

struct GrowingGraph::Impl {
  std::shared_ptr<const Tape> tape;  // as far as it is converted
  std::shared_ptr<ExprContext> ctx;
  std::unique_ptr<TapeConverter> converter;
};

GrowingGraph::GrowingGraph() : impl_(new Impl) {}
GrowingGraph::~GrowingGraph() = default;

/// The converter, taken from here: what an error leaves of it is dropped.
std::unique_ptr<TapeConverter> GrowingGraph::grow(const std::shared_ptr<const Tape>& tape, TorchApi& api, bool engine) {
  std::unique_ptr<TapeConverter> converter = std::move(impl_->converter);
  if (converter != nullptr && converter->leads_to(*tape, engine)) {
    add_facts(*impl_->ctx, *tape, impl_->tape->symbols().size(), impl_->tape->facts().size());
  } else {
    impl_->ctx = graph_context(*tape);
    converter = std::make_unique<TapeConverter>(*tape, api, impl_->ctx);
  }
  converter->grow(*tape, engine);
  impl_->tape = tape;
  return converter;
}

std::vector<std::optional<GradientLayout>> GrowingGraph::gradient_layouts(const std::shared_ptr<const Tape>& tape,
                                                                          TorchApi& api, const TapeNode& pass) {
  std::unique_ptr<TapeConverter> converter = grow(tape, api, true);
  std::vector<std::optional<GradientLayout>> layouts = converter->probe(pass);
  impl_->converter = std::move(converter);
  return layouts;
}

TapeGraph GrowingGraph::finish(const std::shared_ptr<const Tape>& tape, TorchApi& api, const PassOptions& passes) {
  const std::unique_ptr<TapeConverter> converter = grow(tape, api, follows_histories(*tape));
  impl_->tape.reset();
  impl_->ctx.reset();
  return converter->finish(passes);
}

TapeGraph build_graph(const Tape& tape, TorchApi& api, const PassOptions& passes) {
  TapeConverter converter(tape, api, graph_context(tape));
  converter.grow(tape, follows_histories(tape));
  return converter.finish(passes);
}

}  // namespace tatara::capture
