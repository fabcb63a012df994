#include "capture/run/training.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "capture/host/errors.h"
#include "capture/host/package.h"
#include "capture/run/eager_pass.h"
#include "capture/run/forward_node.h"
#include "capture/run/stage_groups.h"
#include "capture/tape/transaction.h"
#include "capture/vm/interrupts.h"
#include "compiler/training.h"
#include "ops/core/op_def.h"
#include "support/error.h"
#include "support/made_once.h"
#include "transforms/stages.h"

namespace tatara::capture {
namespace {

/// A plan as a function of tensors.
class PlanCall {
 public:
  PlanCall(const TrainingPlan& plan, int64_t keep_outputs_mb) : outputs_(plan.outputs) {
    if (plan.executable == nullptr) return;
    for (const TensorType& type : plan.inputs) strides_.push_back(constant_strides(type));
    runner_ = std::make_unique<CompiledRunner>(plan.executable, plan.inputs.size(), outputs_, keep_outputs_mb);
    runner_->spare_memory();
  }

  CompiledRunner::Tried call(std::vector<Ref> inputs, std::vector<Ref>& outputs, TorchApi& api) {
    outputs.clear();
    if (runner_ == nullptr) return CompiledRunner::Tried::kDone;
    const size_t count = inputs.size();
    inputs.resize(count + outputs_);
    CompiledRunner::Tried outcome = runner_->try_run(inputs, api);
    // What the host computed may lie otherwise than its operator's types say.
    if (outcome == CompiledRunner::Tried::kRefused && lay_out(inputs, api)) outcome = runner_->try_run(inputs, api);
    if (outcome == CompiledRunner::Tried::kDone) {
      outputs.assign(std::make_move_iterator(inputs.begin() + static_cast<std::ptrdiff_t>(count)),
                     std::make_move_iterator(inputs.end()));
    }
    return outcome;
  }
  /// From now on call() lets go of each input when the plan does not need it any more.
  void consume_operands() {
    if (runner_ != nullptr) runner_->consume_operands();
  }
  void alone_in_memory(const std::vector<int>& outputs) {
    if (runner_ != nullptr) runner_->alone_in_memory(outputs);
  }
  std::string problem() const { return runner_ == nullptr ? std::string() : runner_->problem(); }

 private:
  using Strides = std::optional<std::vector<int64_t>>;

  static Strides constant_strides(const TensorType& type) {
    std::vector<int64_t> strides;
    for (const Expr e : type.strides) {
      if (!e.is_const()) return std::nullopt;
      strides.push_back(e.const_value());
    }
    return strides;
  }

  /// Copies operands with other strides than the plan's, and those without plain memory (zero tensors of the host's
  /// gradients, conjugates); false when there are none.
  bool lay_out(std::vector<Ref>& inputs, TorchApi& api) const {
    bool any = false;
    for (size_t i = 0; i < strides_.size(); ++i) {
      TensorMeta meta;
      if (!strides_[i] || PyFloat_CheckExact(inputs[i].get()) || PyLong_Check(inputs[i].get()) != 0) continue;
      const bool plain = api.read_meta(inputs[i].get(), meta);
      if (!plain) forget_error();
      if (plain && (meta.strides.size() != strides_[i]->size() || meta.strides == *strides_[i])) continue;
      if (runner_->writes_beside(inputs, inputs[i].get())) return false;
      const Ref sizes = attr(inputs[i].get(), "shape"), strides = int_tuple(*strides_[i]);
      Ref copy =
          Ref::steal(PyObject_CallMethod(inputs[i].get(), "new_empty_strided", "OO", sizes.get(), strides.get()));
      if (!copy) return false;
      copy = Ref::steal(PyObject_CallMethod(copy.get(), "copy_", "O", inputs[i].get()));
      if (!copy) return false;
      inputs[i] = std::move(copy);
      any = true;
    }
    return any;
  }

  size_t outputs_;
  std::vector<Strides> strides_;
  std::unique_ptr<CompiledRunner> runner_;
};

using Mask = std::vector<bool>;

/// A backward plan that can be called.
struct Backward {
  const BackwardStage& made;
  PlanCall call;
};

Ref tuple_of(const std::vector<Ref>& items) {
  Ref tuple = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(items.size())));
  for (size_t i = 0; i < items.size(); ++i) {
    PyObject* item = items[i] ? items[i].get() : Py_None;
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), Py_NewRef(item));
  }
  return tuple;
}

Ref int_tuple_of(const std::vector<int>& values) {
  std::vector<Ref> items;
  for (const int v : values) items.push_back(Ref::steal(PyLong_FromLong(v)));
  return tuple_of(items);
}

/// (output, whether of an input, base, whether it needs a gradient) of each view that needs one, or whose base does though
/// it does not itself: views of a tensor that gets its history later would get one too.
Ref described_views(const TrainingStage& stage) {
  std::vector<Ref> views;
  for (size_t i = 0; i < stage.graph.outputs().size(); ++i) {
    const OutputAlias& alias = stage.graph.outputs()[i].alias;
    const bool of_input = alias.kind == OutputAlias::Kind::kInput, needs = stage.outputs_need[i];
    if (alias.kind == OutputAlias::Kind::kFresh) continue;
    if (!needs && (of_input || !stage.outputs_need[static_cast<size_t>(alias.index)])) continue;
    const int through = needs ? stage.nearest_result(i) : -1;
    const int base = through >= 0 ? through : alias.index;
    views.push_back(
        Ref::steal(Py_BuildValue("(nOiO)", static_cast<Py_ssize_t>(i), of_input && through < 0 ? Py_True : Py_False,
                                 base, needs ? Py_True : Py_False)));
  }
  return tuple_of(views);
}

/// For each differentiable output the order of its gradient's dimensions, outermost first, or None: contiguous. Empty: all are.
Ref described_layouts(const TrainingStage& stage) {
  std::vector<Ref> orders;
  for (const std::vector<int>& order : stage.cotangent_orders) {
    orders.push_back(order.empty() ? Ref::borrow(Py_None) : int_tuple_of(order));
  }
  return tuple_of(orders);
}

struct Stage;

/// The backward computation as a stage of its own, to be differentiated again.
struct Second {
  std::shared_ptr<Stage> stage;
  std::vector<SecondStage::Source> sources;
  std::vector<int> gradients, constant;  // as of SecondStage
};

/// A stage with the runners of its plans.
struct Stage {
  std::unique_ptr<TrainingStage> made;
  PlanCall forward;
  Ref groups, differentiable, views, layouts;  // as Python objects
  std::map<Mask, Backward> backwards;
  std::map<std::pair<Mask, Mask>, Second> seconds;

  explicit Stage(std::unique_ptr<TrainingStage> stage)
      : made(std::move(stage)), forward(made->forward, made->options.keep_outputs_mb) {
    forward.alone_in_memory(made->alone_in_memory());
    groups = described_groups(*made);
    if (!groups) throw InternalError("a stage whose groups have no description");
    differentiable = int_tuple_of(made->differentiable);
    views = described_views(*made);
    layouts = described_layouts(*made);
    for (const StageGroup& group : made->groups) static_cast<void>(backward(made->mask_of(group.results)));
  }

  /// What is compiled after the entry was made may rest on facts about sizes that no guard of the entry checks: whether they
  /// hold for the sizes of this call, which the saved values and the carriers have.
  void check_facts(PyObject* values) {
    ExprContext& ctx = made->graph.ctx();
    const size_t known = std::max(made->known_guards, ctx.checked_guards());
    if (ctx.guards().size() <= known) return;
    ExprMap sizes;
    const auto bind = [&](Py_ssize_t value, const TensorType& type) {
      TensorMeta meta;
      if (!TorchApi::get()->read_meta(PyList_GET_ITEM(values, value), meta)) return forget_error();
      for (size_t d = 0; d < type.sizes.size() && d < meta.sizes.size(); ++d) {
        if (type.sizes[d].is_symbol()) sizes.insert_or_assign(type.sizes[d], ctx.constant(meta.sizes[d]));
        if (type.strides[d].is_symbol()) sizes.insert_or_assign(type.strides[d], ctx.constant(meta.strides[d]));
      }
    };
    const auto count = static_cast<Py_ssize_t>(made->saved_types.size());
    for (Py_ssize_t i = 0; i < count; ++i) bind(i, made->saved_types[static_cast<size_t>(i)]);
    for (size_t k = 0; k < made->carriers.size(); ++k)
      bind(count + static_cast<Py_ssize_t>(k), made->carried_type(made->carriers[k]));
    const std::vector<Expr> facts = ctx.guards();
    for (size_t i = known; i < facts.size(); ++i) {
      const Expr fact = ctx.substitute(facts[i], sizes);
      if (!fact.is_const() || fact.const_value() == 0) {
        throw Unsupported("a gradient decides by sizes that vary; compile with dynamic=False");
      }
    }
  }

  Backward& backward(const Mask& given) {
    if (const auto found = backwards.find(given); found != backwards.end()) return found->second;
    const BackwardStage& compiled = made->backward(given);
    PlanCall call(compiled.plan, made->options.keep_outputs_mb);
    call.consume_operands();
    return backwards.emplace(given, Backward{compiled, std::move(call)}).first->second;
  }

  Second& second(const Mask& given, const Mask& cotangents_need) {
    const auto key = std::make_pair(given, cotangents_need);
    if (const auto found = seconds.find(key); found != seconds.end()) return found->second;
    SecondStage again = made->second(given, cotangents_need);
    Second next{std::make_shared<Stage>(std::move(again.stage)), std::move(again.sources), std::move(again.gradients),
                std::move(again.constant)};
    return seconds.emplace(key, std::move(next)).first->second;
  }
};

// ---- The stage as a Python object ------------------------------------------------------------------------------------

struct StageObject {
  PyObject_HEAD std::shared_ptr<Stage>* stage;
};

Ref wrap_stage(std::shared_ptr<Stage> stage);
Stage& stage_of(PyObject* self) { return **reinterpret_cast<StageObject*>(self)->stage; }

void stage_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<StageObject*>(self)->stage;
  type->tp_free(self);
  Py_DECREF(type);
}

/// Gradients are off while plans and their host operators run.
class NoGrad {
 public:
  explicit NoGrad(TorchApi& api) : gradients_(api, false), autocast_(api) {}

 private:
  GradientsSet gradients_;
  AutocastOff autocast_;  // casts are in the graph
};

std::vector<Ref> items_of(PyObject* sequence) {
  std::vector<Ref> items;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i) {
    items.push_back(Ref::borrow(PySequence_Fast_GET_ITEM(sequence, i)));
  }
  return items;
}

Mask mask_of(PyObject* tuple) {
  Mask mask;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) mask.push_back(PyTuple_GET_ITEM(tuple, i) == Py_True);
  return mask;
}

/// Runs `body`, turning C++ exceptions into Python ones.
template <typename Fn>
PyObject* guarded(Fn&& body) {
  const SignalsWait wait;
  try {
    return body();
  } catch (const std::exception& error) {
    if (PyErr_Occurred() == nullptr) raise_error(error);
    return nullptr;
  }
}

/// Of the last stage that refused its operands: why, and whether it had begun to run.
struct Refusal {
  std::string reason;
  bool begun = false;
};
Refusal& last_refusal() {
  thread_local Refusal refusal;
  return refusal;
}

/// An empty tensor of the size that a tensor among the inputs has, or that a Python int among them is. Null with a Python error
/// set.
Ref carry(const SizeCarrier& carrier, PyObject* input, const TorchApi& api) {
  if (PyLong_CheckExact(input)) {
    const Ref bytes = attr(api.torch.get(), "uint8");
    const Ref made = Ref::steal(PyObject_CallMethod(api.torch.get(), "empty", "((ii))", 0, 0));
    const Ref plain = made && bytes ? Ref::steal(PyObject_CallMethod(made.get(), "to", "O", bytes.get())) : Ref();
    return plain ? Ref::steal(PyObject_CallMethod(plain.get(), "new_empty", "((Oi))", input, 0)) : Ref();
  }
  const Ref size = Ref::steal(PyObject_CallMethod(input, carrier.stride ? "stride" : "size", "i", carrier.dim));
  return size ? Ref::steal(PyObject_CallMethod(input, "new_empty", "((Oi))", size.get(), 0)) : Ref();
}

PyObject* stage_run(PyObject* self, PyObject* inputs) {
  return guarded([&]() -> PyObject* {
    Stage& stage = stage_of(self);
    TorchApi& api = *TorchApi::get();
    for (const SizeCarrier& carrier : stage.made->carriers) {
      PyObject* const given = PySequence_Fast_GET_ITEM(inputs, static_cast<Py_ssize_t>(carrier.input));
      if (!PyLong_CheckExact(given) ||
          PyObject_RichCompareBool(given, Ref::steal(PyLong_FromLong(0)).get(), Py_LT) == 0) {
        continue;
      }
      last_refusal() = {"a negative number that gradients may depend on", false};
      Py_RETURN_NONE;
    }
    const NoGrad off(api);
    std::vector<Ref> outputs;
    const CompiledRunner::Tried tried = stage.forward.call(items_of(inputs), outputs, api);
    switch (tried) {
      case CompiledRunner::Tried::kDone: break;
      case CompiledRunner::Tried::kRefused:
      case CompiledRunner::Tried::kBroken:
        forget_error();  // the tape is to run instead
        last_refusal() = {stage.forward.problem(), tried == CompiledRunner::Tried::kBroken};
        Py_RETURN_NONE;
      case CompiledRunner::Tried::kFailed: return nullptr;
    }
    std::vector<Ref> saved;
    for (const ForwardGraph::Saved& place : stage.made->saved_places) {
      const auto at = static_cast<Py_ssize_t>(place.index);
      saved.push_back(place.from == ForwardGraph::Saved::From::kInput
                          ? Ref::borrow(PySequence_Fast_GET_ITEM(inputs, at))
                          : outputs[static_cast<size_t>(place.index)]);
    }
    for (const SizeCarrier& carrier : stage.made->carriers) {
      saved.push_back(carry(carrier, PySequence_Fast_GET_ITEM(inputs, static_cast<Py_ssize_t>(carrier.input)), api));
      if (!saved.back()) return nullptr;
    }
    outputs.resize(stage.made->graph.outputs().size());
    const Ref results = tuple_of(outputs), kept = tuple_of(saved);
    return PyTuple_Pack(2, results.get(), kept.get());
  });
}

/// backward(saved, cotangents): a gradient or None per input of the stage. The list of saved values is emptied, and each goes
/// when it is not needed any more, so that they and the gradients need not all be there at once.
PyObject* stage_backward(PyObject* self, PyObject* args) {
  PyObject *saved = nullptr, *cotangents = nullptr;
  if (PyArg_ParseTuple(args, "O!O!", &PyList_Type, &saved, &PyTuple_Type, &cotangents) == 0) return nullptr;
  return guarded([&]() -> PyObject* {
    Stage& stage = stage_of(self);
    TorchApi& api = *TorchApi::get();
    Mask given;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(cotangents); ++i) {
      given.push_back(PyTuple_GET_ITEM(cotangents, i) != Py_None);
    }
    Backward& backward = stage.backward(given);
    stage.check_facts(saved);
    if (backward.made.reentrant && !call_package<PackageFunction::kCheckReentrant>()) return nullptr;
    const auto cotangent = [&](int i) {
      const int output = backward.made.joint.cotangents[static_cast<size_t>(i)];
      const auto place = std::find(stage.made->differentiable.begin(), stage.made->differentiable.end(), output);
      return PyTuple_GET_ITEM(cotangents, place - stage.made->differentiable.begin());
    };
    std::vector<Ref> inputs;
    for (const int source : backward.made.cut.inputs) {
      inputs.push_back(Ref::borrow(source >= 0 ? PyList_GET_ITEM(saved, source) : cotangent(-1 - source)));
    }
    if (PyList_SetSlice(saved, 0, PyList_GET_SIZE(saved), nullptr) != 0) return nullptr;
    const NoGrad off(api);
    std::vector<Ref> outputs;
    switch (backward.call.call(std::move(inputs), outputs, api)) {
      case CompiledRunner::Tried::kDone: break;
      case CompiledRunner::Tried::kRefused:
        set_host_error("tatara: a compiled gradient refused its operands: " + backward.call.problem());
        return nullptr;
      case CompiledRunner::Tried::kBroken:
      case CompiledRunner::Tried::kFailed: return nullptr;
    }
    std::vector<Ref> gradients(stage.made->needs.size());
    for (size_t i = 0; i < backward.made.joint.gradients.size(); ++i) {
      const int output = backward.made.cut.outputs[i];
      gradients[static_cast<size_t>(backward.made.joint.gradients[i])] =
          output >= 0 ? outputs[static_cast<size_t>(output)] : Ref::borrow(cotangent(-1 - output));
    }
    return tuple_of(gradients).release();
  });
}

/// second(given, need, saved): (stage, ((kind, index), ...), inputs of the gradients, constant results).
PyObject* stage_second(PyObject* self, PyObject* args) {
  PyObject *given = nullptr, *need = nullptr, *saved = nullptr;
  if (PyArg_ParseTuple(args, "O!O!O!", &PyTuple_Type, &given, &PyTuple_Type, &need, &PyList_Type, &saved) == 0) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    Stage& stage = stage_of(self);
    if (stage.backward(mask_of(given)).made.reentrant && !call_package<PackageFunction::kRefuseReentrant>())
      return nullptr;
    Second& second = stage.second(mask_of(given), mask_of(need));
    stage.check_facts(saved);
    std::vector<Ref> sources;
    for (const SecondStage::Source& source : second.sources) {
      const char kind[] = {source.kind, 0};
      sources.push_back(Ref::steal(Py_BuildValue("(si)", kind, source.index)));
    }
    const Ref next = wrap_stage(second.stage), places = tuple_of(sources), inputs = int_tuple_of(second.gradients);
    return PyTuple_Pack(4, next.get(), places.get(), inputs.get(), int_tuple_of(second.constant).get());
  });
}

PyObject* stage_differentiable(PyObject* self, void*) { return Py_NewRef(stage_of(self).differentiable.get()); }

PyObject* stage_layouts(PyObject* self, void*) { return Py_NewRef(stage_of(self).layouts.get()); }

/// Whether something of it is computed again for gradients, in eager under hooks on saved tensors.
PyObject* stage_recomputes(PyObject* self, void*) {
  const std::vector<Node>& nodes = stage_of(self).made->graph.nodes();
  const auto recomputed = [](const Node& node) { return node.region != nullptr && !node.region->reentrant; };
  return PyBool_FromLong(std::any_of(nodes.begin(), nodes.end(), recomputed) ? 1 : 0);
}

PyObject* stage_groups(PyObject* self, void*) { return Py_NewRef(stage_of(self).groups.get()); }

/// {input: position among the saved values}
PyObject* stage_saved_inputs(PyObject* self, void*) {
  const Stage& stage = stage_of(self);
  PyObject* dict = PyDict_New();
  for (size_t i = 0; i < stage.made->saved_places.size(); ++i) {
    if (stage.made->saved_places[i].from != ForwardGraph::Saved::From::kInput) continue;
    const Ref key = Ref::steal(PyLong_FromLong(stage.made->saved_places[i].index));
    const Ref value = Ref::steal(PyLong_FromSize_t(i));
    PyDict_SetItem(dict, key.get(), value.get());
  }
  return dict;
}

PyObject* stage_views(PyObject* self, void*) { return Py_NewRef(stage_of(self).views.get()); }

PyTypeObject* stage_type() {
  return made_once([] {
    static PyMethodDef methods[] = {
        {"run", stage_run, METH_O, "run(inputs) -> (outputs, saved), or None for operands that do not fit"},
        {"backward", stage_backward, METH_VARARGS, "backward(saved, cotangents) -> gradients"},
        {"second", stage_second, METH_VARARGS,
         "second(given, need, saved) -> (stage, sources, inputs of the gradients, constant results)"},
        {nullptr, nullptr, 0, nullptr}};
    static PyGetSetDef getset[] = {
        {"differentiable", stage_differentiable, nullptr, "fresh outputs that need a gradient", nullptr},
        {"layouts", stage_layouts, nullptr, "layouts of the gradients of these outputs", nullptr},
        {"groups", stage_groups, nullptr, "results that passes go through together (stage_groups.h)", nullptr},
        {"recomputes", stage_recomputes, nullptr, "whether a checkpoint computes some of it again for gradients",
         nullptr},
        {"saved_inputs", stage_saved_inputs, nullptr, "inputs among the saved values", nullptr},
        {"views", stage_views, nullptr, "outputs that are views of what needs a gradient", nullptr},
        {nullptr, nullptr, nullptr, nullptr, nullptr}};
    static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(stage_dealloc)},
                                  {Py_tp_methods, methods},
                                  {Py_tp_getset, getset},
                                  {0, nullptr}};
    static PyType_Spec spec = {"tatara._core.TrainingStage", sizeof(StageObject), 0, Py_TPFLAGS_DEFAULT, slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  });
}

Ref wrap_stage(std::shared_ptr<Stage> stage) {
  auto* object = PyObject_New(StageObject, stage_type());
  if (object == nullptr) return {};
  object->stage = new std::shared_ptr<Stage>(std::move(stage));
  return Ref::steal(reinterpret_cast<PyObject*>(object));
}

// ---- The runner of an entry ------------------------------------------------------------------------------------------

class TrainingRunner final : public GraphRunner {
 public:
  /// `draws`: some stage draws random numbers.
  TrainingRunner(Ref stages, std::shared_ptr<const EagerPass> eager, TapeGraph made, const Tape& tape, Mask needs,
                 bool draws)
      : stages_(std::move(stages)),
        eager_(std::move(eager)),
        inputs_(std::move(made.inputs)),
        outputs_(std::move(made.outputs)),
        constants_(std::move(made.constants)),
        host_nodes_(std::move(made.host_nodes)),
        needs_(std::move(needs)),
        draws_(draws),
        hooked_(tape.has_hooked_results()) {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const OutputAlias& alias = made.graph.outputs()[i].alias;
      origins_.push_back(alias.kind == OutputAlias::Kind::kFresh ? ViewOrigin() : view_origin(tape, outputs_[i]));
      if (alias.kind != OutputAlias::Kind::kOutput) continue;
      const auto base = static_cast<size_t>(alias.index);
      if (base < outputs_.size()) {
        origins_.back().of_result = outputs_[base];
      } else {  // of memory that no result is the whole of: nothing here but detach() changes what the view is
        const ViewOrigin whole = std::exchange(origins_.back(), ViewOrigin());
        origins_.back().detached = whole.detached;
        origins_.back().uncounted = whole.uncounted;
      }
    }
    for (const InputWrite& write : made.graph.input_writes()) {
      written_.push_back(inputs_[static_cast<size_t>(write.input_index)]);
    }
  }

  int traverse(const Visitor& visit) const override { return visit(stages_, constants_); }
  Outcome run(const Tape& tape, std::vector<Ref>& env, TorchApi& api) override {
    if (!run_numbers(tape, host_nodes_, env, api)) return Outcome::kFailed;
    Ref inputs = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(inputs_.size())));
    bool same = true;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      PyObject* tensor = inputs_[i] >= 0 ? env[static_cast<size_t>(inputs_[i])].get()
                                         : constants_[static_cast<size_t>(-1 - inputs_[i])].get();
      PyTuple_SET_ITEM(inputs.get(), static_cast<Py_ssize_t>(i), Py_NewRef(tensor));
      if (PyLong_Check(tensor) != 0 || PyFloat_CheckExact(tensor)) continue;
      same = same && api.requires_grad(tensor) == needs_[i];
    }
    if (!same) {
      problem_ = "an input requires grad where it did not, or no longer does";
      return Outcome::kRefused;
    }
    Transaction* const transaction = Transaction::current();
    // A plan may refuse its inputs in any call, when others have drawn before it.
    if (draws_ && transaction != nullptr) transaction->keep_generators(tape, env, api);
    const Ref given = eager_ != nullptr ? remember_run(eager_, env) : Ref::borrow(hooked_ ? Py_False : Py_None);
    if (!given) return Outcome::kFailed;
    const Ref results = run_stages(stages_.get(), inputs.get(), given.get());
    if (!results) return Outcome::kFailed;
    if (results.get() == Py_None) {
      problem_ = last_refusal().reason;
      return last_refusal().begun || draws_ ? Outcome::kTape : Outcome::kRefused;
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Ref found = Ref::borrow(PyList_GET_ITEM(results.get(), static_cast<Py_ssize_t>(i)));
      Ref result = without_history(origins_[i], env, api, found);
      if (!result) return Outcome::kFailed;
      env[static_cast<size_t>(outputs_[i])] = std::move(result);
    }
    return Outcome::kDone;
  }
  std::string problem() const override { return problem_; }
  bool compiled() const override { return true; }
  std::vector<int> written_slots() const override { return written_; }

 private:
  /// A view as eager makes it where nothing is recorded. Torch refuses to go on from a view that was made with gradients off, as a
  /// stage makes them, once its base gets a history. Null with a Python error set.
  Ref without_history(const ViewOrigin& origin, const std::vector<Ref>& env, TorchApi& api, const Ref& view) const {
    const bool hidden = origin.of_result >= 0 && !api.requires_grad(view.get()) && !origin.is_view_of(origin.of_result);
    Ref apart;
    if (origin.detached || hidden) apart = apart_as(origin, view.get());
    if (origin.detached || (hidden && (!apart || origin.bases.empty()))) return apart;
    const int from = origin.of_result >= 0 ? origin.of_result : origin.base;
    PyObject* base = hidden ? apart.get() : from < 0 ? nullptr : env[static_cast<size_t>(from)].get();
    if (base == nullptr) return view;
    const bool needs = api.requires_grad(base);
    if (!hidden && (origin.constant || (needs && origin.recorded))) return view;
    const GradientsSet mode(api, !needs && !origin.silent);
    const Ref offset = Ref::steal(PyObject_CallMethod(view.get(), "storage_offset", nullptr));
    const Ref stride = Ref::steal(PyObject_CallMethod(view.get(), "stride", nullptr));
    const Ref size = attr_or_null(view.get(), "shape");
    if (!offset || !stride || !size) return {};
    return Ref::steal(PyObject_CallMethod(base, "as_strided", "OOO", size.get(), stride.get(), offset.get()));
  }

  Ref stages_;
  std::shared_ptr<const EagerPass> eager_;
  std::vector<int> inputs_, outputs_, written_;
  std::vector<ViewOrigin> origins_;  // of outputs_
  std::vector<Ref> constants_;
  std::vector<size_t> host_nodes_;
  Mask needs_;
  bool draws_, hooked_;
  std::string problem_;
};

}  // namespace

CompiledTraining compile_training(TapeGraph made, const std::shared_ptr<const Tape>& whole,
                                  const CompileOptions& options) {
  const Tape& tape = *whole;
  const Mask needs = inputs_needing_grad(made, tape);
  CompiledTraining result;
  const std::vector<GraphStage> parts = split_stages(made.graph, needs);
  const Ref stages = Ref::steal(PyList_New(0));
  std::vector<Mask> values_matter;
  HeldByHost host(made, tape);
  for (const GraphStage& part : parts) {
    const ResultGroups groups = groups_of_results(part, tape, host);
    auto made_stage = std::make_unique<TrainingStage>(part.graph, part.needs, options, result.results, &groups);
    values_matter.push_back(made_stage->values_matter);
    const Ref stage = wrap_stage(std::make_shared<Stage>(std::move(made_stage)));
    const Ref item =
        Ref::steal(PyTuple_Pack(3, stage.get(), int_tuple_of(part.inputs).get(), int_tuple_of(part.outputs).get()));
    if (PyList_Append(stages.get(), item.get()) != 0) forget_error();
  }
  const bool draws = std::any_of(result.results.begin(), result.results.end(),
                                 [](const CompileResult& compiled) { return compiled.executable->draws(); });
  std::shared_ptr<const EagerPass> eager = eager_pass(whole, made, parts, values_matter, draws);
  result.runner =
      std::make_unique<TrainingRunner>(stages, std::move(eager), std::move(made), tape, std::move(needs), draws);
  return result;
}

}  // namespace tatara::capture
