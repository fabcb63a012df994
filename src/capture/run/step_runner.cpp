// The runner of graphs that compute gradients themselves: whole training steps.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "capture/host/package.h"
#include "capture/run/runner.h"
#include "capture/run/training.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture {

Ref gradient_hooks(PyObject* tensor) {
  if (TorchApi::get()->lacks_hooks(tensor)) return {};
  std::array<Ref, 2> found;
  size_t place = 0;
  bool any = false;
  for (const char* name : {"_backward_hooks", "_post_accumulate_grad_hooks"}) {
    Ref& here = found[place++];
    const Ref hooks = attr_or_null(tensor, name);
    if (!hooks || hooks.get() == Py_None || PyObject_Size(hooks.get()) == 0) continue;
    const Ref values = Ref::steal(PyMapping_Values(hooks.get()));
    if (values) here = Ref::steal(PyList_AsTuple(values.get()));
    any = any || here;
  }
  forget_error();
  if (!any) return {};
  for (Ref& each : found) {
    if (!each) each = Ref::steal(PyTuple_New(0));
  }
  return Ref::steal(PyTuple_Pack(2, found[0].get(), found[1].get()));
}

namespace {

/// Whether the tensor's hooks are these, by identity; `expected` may be null.
bool hooks_are(PyObject* tensor, PyObject* expected) {
  const Ref now = gradient_hooks(tensor);
  if (!now || expected == nullptr) return !now && expected == nullptr;
  for (Py_ssize_t k = 0; k < 2; ++k) {
    PyObject *a = PyTuple_GET_ITEM(now.get(), k), *b = PyTuple_GET_ITEM(expected, k);
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i) {
      if (PyTuple_GET_ITEM(a, i) != PyTuple_GET_ITEM(b, i)) return false;
    }
  }
  return true;
}

class StepRunner final : public GraphRunner {
 public:
  StepRunner(std::unique_ptr<GraphRunner> plan, const Tape& tape, std::vector<int> used_up, std::vector<int> leaves)
      : plan_(std::move(plan)), used_up_(std::move(used_up)), leaves_(std::move(leaves)) {
    mark_ = package_function(PackageFunction::kUsedUp);
    std::unordered_map<size_t, PyObject*> hooks;  // by slot; the tape holds them
    for (const TapeNode& node : tape.nodes()) {
      PyObject *slot = nullptr, *value = nullptr;
      const GradientPass* pass = gradient_pass(node);
      if (pass == nullptr || !pass->hooks) continue;
      for (Py_ssize_t at = 0; PyDict_Next(pass->hooks.get(), &at, &slot, &value) != 0;) {
        hooks[PyLong_AsSize_t(slot)] = value;
      }
    }
    const auto hooks_of = [&hooks](size_t slot) {
      const auto found = hooks.find(slot);
      return found == hooks.end() ? nullptr : found->second;
    };
    for (size_t i = 0; i < tape.slots().size(); ++i) {
      const TapeSlot& slot = tape.slots()[i];
      if (!slot.input || slot.number) continue;
      if (slot.guard_index < 0) {
        pinned_.push_back({slot.object.get(), slot.requires_grad, hooks_of(i)});
      } else if (slot.requires_grad) {
        given_.emplace_back(slot.guard_index, hooks_of(i));
      }
    }
  }

  int traverse(const Visitor& visit) const override {
    const int result = visit(mark_);
    return result != 0 ? result : plan_->traverse(visit);
  }

  bool pinned_unchanged(TorchApi& api) override {
    for (const Pinned& each : pinned_) {
      if (api.requires_grad(each.tensor) != each.needs || (each.needs && !hooks_are(each.tensor, each.hooks)))
        return false;
    }
    return plan_->pinned_unchanged(api);
  }

  std::vector<std::string> describe_pinned() const override {
    std::vector<std::string> lines;
    if (!pinned_.empty()) {
      lines.push_back(str_cat("hooks on tensors that the graph holds, and which require grad, are unchanged (",
                              pinned_.size(), ")"));
    }
    for (std::string& line : plan_->describe_pinned()) lines.push_back(std::move(line));
    return lines;
  }

  bool given_unchanged(const std::vector<PyObject*>& objects) override {
    return std::all_of(given_.begin(), given_.end(), [&](const auto& each) {
      return hooks_are(objects[static_cast<size_t>(each.first)], each.second);
    });
  }

  std::vector<std::string> describe_given() const override {
    std::vector<std::string> lines;
    for (const auto& [object, hooks] : given_) lines.push_back(str_cat("hooks on input ", object, " are unchanged"));
    return lines;
  }

  Outcome run(const Tape& tape, std::vector<Ref>& env, TorchApi& api) override {
    std::vector<Ref> given;  // a run lets go of what it has no more use for
    if (!used_up_.empty()) given = env;
    if (const Outcome outcome = plan_->run(tape, env, api); outcome != Outcome::kDone) return outcome;
    const Ref leaves = used_up_.empty() ? Ref() : required(tape, given);
    for (const int slot : used_up_) {
      Ref& value = env[static_cast<size_t>(slot)];
      const Ref& spoiled = tape.slots()[static_cast<size_t>(slot)].spoiled;
      PyObject* error = spoiled ? spoiled.get() : Py_None;
      value = Ref::steal(PyObject_CallFunctionObjArgs(mark_.get(), value.get(), leaves.get(), error, nullptr));
      if (!value) return Outcome::kFailed;
    }
    for (const int slot : leaves_) {
      const Ref done = Ref::steal(PyObject_CallMethod(env[static_cast<size_t>(slot)].get(), "requires_grad_", nullptr));
      if (!done) return Outcome::kFailed;
    }
    return Outcome::kDone;
  }

  std::string problem() const override { return plan_->problem(); }
  std::string launches() const override { return plan_->launches(); }
  bool compiled() const override { return true; }
  std::vector<int> written_slots() const override { return plan_->written_slots(); }

 private:
  /// The inputs that require grad.
  static Ref required(const Tape& tape, const std::vector<Ref>& env) {
    Ref leaves = Ref::steal(PyList_New(0));
    for (size_t i = 0; i < tape.slots().size(); ++i) {
      const TapeSlot& slot = tape.slots()[i];
      PyObject* tensor = slot.object ? slot.object.get() : env[i].get();
      if (!slot.input || !slot.requires_grad || tensor == nullptr) continue;
      if (PyList_Append(leaves.get(), tensor) != 0) forget_error();
    }
    return leaves;
  }

  struct Pinned {
    PyObject* tensor;  // the tape holds it
    bool needs;
    PyObject* hooks;
  };
  std::unique_ptr<GraphRunner> plan_;
  std::vector<int> used_up_, leaves_;
  std::vector<Pinned> pinned_;
  std::vector<std::pair<int, PyObject*>> given_;  // arguments that require grad, and their hooks
  Ref mark_;
};

}  // namespace

std::unique_ptr<GraphRunner> make_step_runner(std::unique_ptr<GraphRunner> plan, const Tape& tape,
                                              std::vector<int> used_up, std::vector<int> leaves) {
  return std::make_unique<StepRunner>(std::move(plan), tape, std::move(used_up), std::move(leaves));
}

}  // namespace tatara::capture
