// The runner of graphs that compute gradients themselves: whole training steps.
#include <algorithm>

#include "capture/training.h"
#include "support/error.h"

namespace tatara::capture {

bool has_gradient_hooks(PyObject* tensor) {
  for (const char* name : {"_backward_hooks", "_post_accumulate_grad_hooks"}) {
    const Ref hooks = attr_or_null(tensor, name);
    if (!hooks || hooks.get() == Py_None) continue;
    const Py_ssize_t count = PyObject_Size(hooks.get());
    if (count < 0) PyErr_Clear();
    if (count != 0) return true;
  }
  return false;
}

namespace {

class StepRunner final : public GraphRunner {
 public:
  StepRunner(std::unique_ptr<GraphRunner> plan, const Tape& tape, std::vector<int> used_up, std::vector<int> leaves)
      : plan_(std::move(plan)), used_up_(std::move(used_up)), leaves_(std::move(leaves)) {
    const Ref module = Ref::steal(PyImport_ImportModule("tatara._training"));
    if (module) mark_ = Ref::steal(PyObject_GetAttrString(module.get(), "used_up"));
    count_ = attr_or_null(TorchApi::get()->core.get(), "_increment_version");
    for (const int slot : plan_->written_slots()) {
      if (slot >= 0) written_.push_back(slot);
    }
    if (!mark_ || !count_) throw InternalError("tatara._training cannot be imported");
    for (size_t i = 0; i < tape.slots().size(); ++i) {
      const TapeSlot& slot = tape.slots()[i];
      if (!slot.input || slot.number) continue;
      if (slot.guard_index < 0) {
        pinned_.push_back({slot.object.get(), slot.requires_grad});
      } else if (slot.requires_grad) {
        given_.push_back(slot.guard_index);
      }
    }
  }

  int traverse(const Visitor& visit) const override {
    const int result = visit(mark_, count_);
    return result != 0 ? result : plan_->traverse(visit);
  }

  bool pinned_unchanged(TorchApi& api) override {
    for (const Pinned& each : pinned_) {
      const Ref needs = attr_or_null(each.tensor, "requires_grad");
      if ((needs.get() == Py_True) != each.needs || (each.needs && has_gradient_hooks(each.tensor))) return false;
    }
    return plan_->pinned_unchanged(api);
  }

  bool given_unchanged(const std::vector<PyObject*>& objects) override {
    return std::none_of(given_.begin(), given_.end(),
                        [&](int index) { return has_gradient_hooks(objects[static_cast<size_t>(index)]); });
  }

  bool run(const Tape& tape, std::vector<Ref>& env, TorchApi& api) override {
    std::vector<Ref> given;  // a run lets go of what it has no more use for
    if (!used_up_.empty()) given = env;
    const bool ran = plan_->run(tape, env, api);
    untouched_ = plan_->untouched();
    if (!ran) return false;
    const Ref leaves = used_up_.empty() ? Ref() : required(tape, given);
    for (const int slot : used_up_) {
      Ref& value = env[static_cast<size_t>(slot)];
      if (attr_or_null(value.get(), "requires_grad").get() == Py_True) continue;  // the tape itself ran
      value = Ref::steal(PyObject_CallFunctionObjArgs(mark_.get(), value.get(), leaves.get(), nullptr));
      if (!value) return false;
    }
    for (const int slot : leaves_) {
      const Ref done = Ref::steal(PyObject_CallMethod(env[static_cast<size_t>(slot)].get(), "requires_grad_", nullptr));
      if (!done) return false;
    }
    return count_writes(env);
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
      if (PyList_Append(leaves.get(), tensor) != 0) PyErr_Clear();
    }
    return leaves;
  }

  /// Eager counts the writes to each tensor.
  bool count_writes(const std::vector<Ref>& env) const {
    // What the tape itself has run is counted, and dropped where it is not wanted.
    const auto gone = [&](int slot) { return !env[static_cast<size_t>(slot)]; };
    if (written_.empty() || std::any_of(written_.begin(), written_.end(), gone)) return true;
    const Ref tensors = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(written_.size())));
    for (size_t i = 0; i < written_.size(); ++i) {
      PyTuple_SET_ITEM(tensors.get(), static_cast<Py_ssize_t>(i),
                       Py_NewRef(env[static_cast<size_t>(written_[i])].get()));
    }
    return static_cast<bool>(Ref::steal(PyObject_CallOneArg(count_.get(), tensors.get())));
  }

  struct Pinned {
    PyObject* tensor;  // the tape holds it
    bool needs;
  };
  std::unique_ptr<GraphRunner> plan_;
  std::vector<int> used_up_, leaves_;
  std::vector<Pinned> pinned_;
  std::vector<int> given_;  // arguments that require grad
  std::vector<int> written_;
  Ref mark_, count_;
};

}  // namespace

std::unique_ptr<GraphRunner> make_step_runner(std::unique_ptr<GraphRunner> plan, const Tape& tape,
                                              std::vector<int> used_up, std::vector<int> leaves) {
  return std::make_unique<StepRunner>(std::move(plan), tape, std::move(used_up), std::move(leaves));
}

}  // namespace tatara::capture
