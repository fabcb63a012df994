// Calls that change the shape of inputs in place. The graph reads the inputs as they come, so they are made behind it.
#include <utility>

#include "capture/host/torch_native.h"
#include "capture/run/training.h"
#include "capture/tape/transaction.h"
#include "capture/tape/view_origins.h"

namespace tatara::capture {
namespace {

class LateRunner final : public GraphRunner {
 public:
  LateRunner(std::unique_ptr<GraphRunner> plan, std::vector<size_t> nodes)
      : plan_(std::move(plan)), nodes_(std::move(nodes)) {}

  Outcome run(const Tape& tape, std::vector<Ref>& env, TorchApi& api) override {
    std::vector<int64_t> symbols;
    if (!tape.symbol_values(env, api, symbols)) return Outcome::kFailed;
    std::vector<Ref> inputs;  // a run lets go of what it has no more use for
    for (size_t i = 0; i < env.size(); ++i) inputs.push_back(tape.slots()[i].input ? env[i] : Ref());
    if (const Outcome outcome = plan_->run(tape, env, api); outcome != Outcome::kDone) return outcome;
    Transaction* const transaction = Transaction::current();
    for (const size_t n : nodes_) {
      const TapeNode& node = tape.nodes()[n];
      const int slot = slot_of(PyTuple_GET_ITEM(node.args.get(), 0));
      if (!tape.slots()[static_cast<size_t>(slot)].input) {
        // A view of an input, whose writes are counted together.
        if (!TorchNative::get().count_write(inputs[static_cast<size_t>(view_origin(tape, slot).base)].get()))
          return Outcome::kFailed;
        continue;
      }
      if (transaction != nullptr) transaction->keep_operands(node, inputs, api);
      const GradientsSet mode(api, node.mode);
      if (!Tape::call_object(node, inputs, symbols)) return Outcome::kFailed;
    }
    return Outcome::kDone;
  }

  bool pinned_unchanged(TorchApi& api) override { return plan_->pinned_unchanged(api); }
  bool given_unchanged(const std::vector<PyObject*>& objects) override { return plan_->given_unchanged(objects); }
  std::vector<std::string> describe_pinned() const override { return plan_->describe_pinned(); }
  std::vector<std::string> describe_given() const override { return plan_->describe_given(); }
  std::string problem() const override { return plan_->problem(); }
  std::string launches() const override { return plan_->launches(); }
  std::vector<int> written_slots() const override { return plan_->written_slots(); }
  bool compiled() const override { return plan_->compiled(); }
  bool checks_results() const override { return plan_->checks_results(); }
  int traverse(const Visitor& visit) const override { return plan_->traverse(visit); }

 private:
  std::unique_ptr<GraphRunner> plan_;
  std::vector<size_t> nodes_;
};

}  // namespace

std::unique_ptr<GraphRunner> make_late_runner(std::unique_ptr<GraphRunner> plan, std::vector<size_t> nodes) {
  return std::make_unique<LateRunner>(std::move(plan), std::move(nodes));
}

}  // namespace tatara::capture
