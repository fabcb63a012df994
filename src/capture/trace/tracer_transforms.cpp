// torch.func's transforms while a trace is open. Their Python code runs as any other; its calls of the host's levels become
// nodes of the tape, which does the same when it runs as it stands.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "capture/host/package.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/checkpoint_tracing.h"
#include "capture/trace/function_tracing.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/lifetime_tracing.h"
#include "capture/trace/number_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/trace_ends.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/tracer_modes.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/write_tracing.h"
#include "ops/core/op_def.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture {

namespace {

/// torch.utils.checkpoint.checkpoint, which torch wraps in a switch for its own compiler, or a functools.partial of it.
bool is_checkpoint(PyObject* callable) {
  if (is_partial(callable)) {
    const Ref function = attr_or_null(callable, "func");
    return function && is_checkpoint(function.get());
  }
  if (!PyFunction_Check(callable)) return false;
  const auto* function = reinterpret_cast<PyFunctionObject*>(callable);
  const auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  return PyUnicode_CompareWithASCIIString(function->func_name, "checkpoint") == 0 &&
         PyUnicode_CompareWithASCIIString(code->co_name, "inner") == 0 && function->func_module != nullptr &&
         PyUnicode_Check(function->func_module) &&
         PyUnicode_CompareWithASCIIString(function->func_module, "torch.utils.checkpoint") == 0;
}

/// torch.utils.checkpoint's node in the graph of gradients, with use_reentrant=True.
bool is_reentrant_checkpoint(PyObject* callable) {
  if (!PyMethod_Check(callable) || !PyType_Check(PyMethod_GET_SELF(callable))) return false;
  const auto* type = reinterpret_cast<PyTypeObject*>(PyMethod_GET_SELF(callable));
  PyObject* function = PyMethod_GET_FUNCTION(callable);
  if (std::strcmp(type->tp_name, "CheckpointFunction") != 0 || !PyFunction_Check(function)) return false;
  const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  const Ref module = attr_or_null(PyMethod_GET_SELF(callable), "__module__");
  return text_of(module.get()) == "torch.utils.checkpoint" &&
         PyUnicode_CompareWithASCIIString(code->co_name, "apply") == 0;
}

/// Arguments of a call, by position or name.
class CallArgs {
 public:
  CallArgs(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) : args_(args), nargs_(nargs), names_(kwnames) {}
  PyObject* get(Py_ssize_t position, const char* name) const {
    if (position < nargs_) return args_[position];
    for (Py_ssize_t i = 0; names_ != nullptr && i < PyTuple_GET_SIZE(names_); ++i) {
      if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names_, i), name) == 0) return args_[nargs_ + i];
    }
    return nullptr;
  }
  int number(Py_ssize_t position, const char* name) const {
    PyObject* value = get(position, name);
    const long result = value != nullptr && PyLong_Check(value) ? PyLong_AsLong(value) : -1;
    forget_error();
    return static_cast<int>(result);
  }
  bool flag(Py_ssize_t position, const char* name, bool otherwise) const {
    PyObject* value = get(position, name);
    return value == nullptr ? otherwise : value == Py_True;
  }

 private:
  PyObject* const* args_;
  Py_ssize_t nargs_;
  PyObject* names_;
};

Ref slots_of(const std::vector<int>& slots) {
  Ref list = Ref::steal(PyList_New(0));
  for (const int slot : slots) {
    if (PyList_Append(list.get(), make_slot_ref(slot).get()) != 0) forget_error();
  }
  return list;
}

std::vector<PyObject*> items_of(PyObject* sequence) {
  std::vector<PyObject*> items;
  if (sequence == nullptr || !(PyTuple_Check(sequence) || PyList_Check(sequence))) return items;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i)
    items.push_back(PySequence_Fast_GET_ITEM(sequence, i));
  return items;
}

}  // namespace

TransformCall transform_call_of(PyObject* callable, TransformCall known) {
  if (known == TransformCall::kCheckpoint) return is_checkpoint(callable) ? known : TransformCall::kNone;
  if (known == TransformCall::kReentrant) return is_reentrant_checkpoint(callable) ? known : TransformCall::kNone;
  return PyMethod_Check(callable) ? TransformCall::kNone : known;
}

Ref host_call(PyObject* callable) {
  if (!PyFunction_Check(callable)) return Ref::borrow(callable);
  const Ref name = attr_or_null(callable, "__name__");
  const std::string impl = text_of(name.get()) + "_impl";
  PyObject* found = PyDict_GetItemString(PyFunction_GET_GLOBALS(callable), impl.c_str());
  return Ref::borrow(found != nullptr ? found : callable);
}

/// The slot of a tensor that a level is given, or -1 after `problem` was set.
int TransformTracing::transform_operand(PyObject* tensor, std::string& problem) {
  const Bypass bypass(bypass_);
  int slot = -1;
  if (tensor == nullptr || !api_.is_plain_tensor(tensor) || api_.is_numpy(tensor)) {
    problem = tensor != nullptr && api_.is_tensor(tensor) ? "a tensor subclass in a transform" : "no tensor";
  } else if (TensorMeta meta; trace_->tape.find(tensor) < 0 && !api_.read_meta(tensor, meta)) {
    problem = api_.why_not(tensor);
  } else {
    slot = gradients().operand_slot(slot_for(tensor));
    if (slot < 0) problem = "a tensor without meta form";
  }
  forget_error();
  return slot;
}

/// A placeholder of the type of another slot.
int TransformTracing::placeholder_like(int slot, int level) {
  Trace& t = *trace_;
  const Bypass bypass(bypass_);
  const TapeSlot info = t.tape.slots()[static_cast<size_t>(slot)];
  const Ref made = api_.empty_meta(info.sizes.get(), info.strides.get(), info.dtype.get());
  if (!made) return -1;
  const int result = t.tape.add_placeholder(made.get(), info.device);
  if (!info.symbolic_sizes.empty()) t.tape.set_layout(result, info.symbolic_sizes, info.symbolic_strides);
  t.tape.set_level(result, level);
  return result;
}

void TransformTracing::record_step(TransformStep step, const char* name, Ref func, Ref args, std::vector<int> outputs) {
  Trace& t = *trace_;
  const Bypass bypass(bypass_);
  TapeNode node;
  node.name = name;
  node.func = std::move(func);
  node.args = std::move(args);
  node.outputs = std::move(outputs);
  node.sequence = step.step == FuncStep::kUnpackDual;
  node.kind = std::move(step);
  note_modes(node);
  node.location = user_location();
  t.tape.add_node(std::move(node));
}

void TransformTracing::note_modes(TapeNode& node, bool mode) const {
  node.mode = mode;
  node.level = innermost();
  node.grad = node.mode && std::all_of(own_.open_levels.begin(), own_.open_levels.end(), [this](int level) {
                return own_.levels[static_cast<size_t>(level)].outer_grad;
              });
}

/// Breaks the graph, then lets the VM go on: not_handled(), or null with an error.
PyObject* TransformTracing::transform_break(const std::string& reason) {
  return graph_break("torch.func: " + reason) ? not_handled() : nullptr;
}

PyObject* TransformTracing::enter_level(Ref callable, Level level, Ref args, const char* name) {
  std::string problem;
  {
    const Bypass bypass(bypass_);
    if (Ref::steal(PyObject_CallNoArgs(api_.state.is_inference.get())).get() == Py_True) problem = "in inference mode";
    level.outer_grad = level.kind != Level::Kind::kGrad || api_.grad_enabled();
    const bool nested = std::any_of(own_.open_levels.begin(), own_.open_levels.end(), [this](int open) {
      return own_.levels[static_cast<size_t>(open)].kind == Level::Kind::kGrad;
    });
    if (!level.outer_grad && nested) problem = "a transform inside of another where gradients are switched off";
    forget_error();
  }
  if (!problem.empty()) {
    PyObject* broken = transform_break(problem);
    if (broken == nullptr && !tracing()) {
      // The graph may not break (fullgraph): torch leaves the level before the error goes on, so it is entered.
      const ErrorAside aside;
      if (!Ref::steal(PyObject_CallObject(callable.get(), args.get()))) forget_error();
    }
    return broken;
  }
  level.number = static_cast<int>(own_.open_levels.size()) + 1;
  record_step({FuncStep::kEnter, static_cast<int>(own_.levels.size())}, name, std::move(callable), std::move(args), {});
  own_.levels.push_back(std::move(level));
  own_.open_levels.push_back(static_cast<int>(own_.levels.size()) - 1);
  return PyLong_FromLong(own_.levels.back().number);
}

PyObject* TransformTracing::exit_level(Ref callable, Ref args) {
  if (own_.open_levels.empty()) return transform_break("a level ends that the trace has not entered");
  record_step({FuncStep::kExit}, "exit_level", std::move(callable), std::move(args), {});
  own_.open_levels.pop_back();
  return PyLong_FromLong(own_.levels.size() > 1 ? static_cast<long>(own_.open_levels.size()) + 1 : 0);
}

/// The open level with torch's number, as a place in `levels`; 0: none.
int TransformTracing::open_level(int number) const {
  for (const int level : own_.open_levels) {
    if (own_.levels[static_cast<size_t>(level)].number == number) return level;
  }
  return 0;
}

PyObject* TransformTracing::wrap_tensor(PyObject* callable, PyObject* tensor, int number) {
  Trace& t = *trace_;
  std::string problem;
  const int level = open_level(number);
  const int slot = transform_operand(tensor, problem);
  if (level == 0 || level != innermost()) problem = "a tensor is given to a level that is not the innermost one";
  if (!problem.empty()) return transform_break(problem);
  const int made = placeholder_like(slot, level);
  if (made < 0) return nullptr;
  own_.wraps[made] = slot;
  const Ref ref = make_slot_ref(slot);
  record_step({FuncStep::kWrap, number}, "wrap", host_call(callable), Ref::steal(PyTuple_Pack(1, ref.get())), {made});
  return Py_NewRef(t.tape.slots()[static_cast<size_t>(made)].object.get());
}

PyObject* TransformTracing::unwrap_tensor(PyObject* callable, PyObject* tensor, int number) {
  Trace& t = *trace_;
  std::string problem;
  const int level = open_level(number);
  const int slot = transform_operand(tensor, problem);
  if (level == 0 || level != innermost()) problem = "a tensor leaves a level that is not the innermost one";
  if (!problem.empty()) return transform_break(problem);
  const TapeSlot& info = t.tape.slots()[static_cast<size_t>(slot)];
  if (info.level != level) return Py_NewRef(tensor);
  if (const auto wrapped = own_.wraps.find(slot); wrapped != own_.wraps.end()) {
    return Py_NewRef(t.tape.slots()[static_cast<size_t>(wrapped->second)].object.get());
  }
  if (const int before = given_before(FuncStep::kUnwrap, slot); before >= 0) {
    return Py_NewRef(t.tape.slots()[static_cast<size_t>(before)].object.get());
  }
  const int parent = own_.open_levels.size() > 1 ? own_.open_levels[own_.open_levels.size() - 2] : 0;
  const int made = placeholder_like(slot, parent);
  if (made < 0) return nullptr;
  const Ref ref = make_slot_ref(slot);
  record_step({FuncStep::kUnwrap, number}, "unwrap", host_call(callable), Ref::steal(PyTuple_Pack(1, ref.get())),
              {made});
  return Py_NewRef(t.tape.slots()[static_cast<size_t>(made)].object.get());
}

/// requires_grad_() of a tensor that a transform has just wrapped.
bool TransformTracing::make_variable(PyObject* args, PyObject* kwargs) {
  Trace& t = *trace_;
  if (!own_.variables_allowed || kwargs != nullptr || PyTuple_GET_SIZE(args) != 1) return false;
  const int slot = t.tape.find(PyTuple_GET_ITEM(args, 0));
  if (slot < 0 || t.tape.slots()[static_cast<size_t>(slot)].level != innermost() || !own_.wraps.contains(slot))
    return false;
  {
    const Bypass bypass(bypass_);
    const DType dtype = dtype_of(t.tape.slots()[static_cast<size_t>(slot)].dtype.get());
    if (!is_floating(dtype) && !is_complex(dtype)) return false;
  }
  const Ref ref = make_slot_ref(slot);
  record_step({FuncStep::kVariable}, "variable", package_function(PackageFunction::kVariable),
              Ref::steal(PyTuple_Pack(1, ref.get())), {});
  return true;
}

std::string TransformTracing::level_write_problem(const std::string& name, PyObject* args, PyObject* kwargs) const {
  const Trace& t = *trace_;
  if (own_.levels.size() == 1) return {};
  PyObject* target = kwargs != nullptr ? PyDict_GetItemString(kwargs, "out") : nullptr;
  if (target == nullptr && PyTuple_GET_SIZE(args) > 0) target = PyTuple_GET_ITEM(args, 0);
  const int slot = target != nullptr && api_.is_tensor(target) ? t.tape.find(target) : -1;
  if (own_.open_levels.empty()) {
    const bool leftover = slot >= 0 && t.tape.slots()[static_cast<size_t>(slot)].level != 0;
    return leftover ? name + " on a tensor of a transform that has ended" : std::string();
  }
  if (slot < 0) return name + " on a tensor from outside of the transform";
  const int made = t.tape.slots()[static_cast<size_t>(slot)].level;
  const auto place = [this](int level) {
    return std::find(own_.open_levels.begin(), own_.open_levels.end(), level) - own_.open_levels.begin();
  };
  const auto count = static_cast<std::ptrdiff_t>(own_.open_levels.size());
  const std::ptrdiff_t depth = made == 0 ? -1 : place(made);
  if (depth == count) return name + " on a tensor of a transform that has ended";
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const Level& level = own_.levels[static_cast<size_t>(own_.open_levels[static_cast<size_t>(i)])];
    if (level.kind != Level::Kind::kVmap && depth < i) return name + " on a tensor from outside of the transform";
  }
  // Nothing that differs from example to example goes into what is the same for all.
  std::vector<int> operands;
  const auto note = [&](PyObject* o) -> Ref {
    const int found = api_.is_tensor(o) ? t.tape.find(o) : -1;
    if (found >= 0) operands.push_back(found);
    return Ref::borrow(o);
  };
  static_cast<void>(map_structure(args, note));
  if (kwargs != nullptr) static_cast<void>(map_structure(kwargs, note));
  for (const int level : own_.open_levels) {
    if (own_.levels[static_cast<size_t>(level)].kind != Level::Kind::kVmap || is_batched(slot, level)) continue;
    if (std::any_of(operands.begin(), operands.end(), [&](int operand) { return is_batched(operand, level); })) {
      return name + " of an example on a tensor that is the same for all";
    }
  }
  for (const TapeNode& node : t.tape.nodes()) {
    if (step_of(node) == FuncStep::kVariable && slot_of(PyTuple_GET_ITEM(node.args.get(), 0)) == slot) {
      return name + " on a tensor that gradients are asked by";
    }
  }
  return {};
}

/// Of torch.batch_norm and torch.instance_norm, which write to their statistics where they do not use them.
std::string TransformTracing::statistics_problem(const std::string& name, PyObject* args, PyObject* kwargs) const {
  constexpr Py_ssize_t kMean = 3, kVariance = 4, kOwn = 5;  // places of the operands
  if (kwargs != nullptr || PyTuple_GET_SIZE(args) <= kOwn)
    return name + " inside of a transform: it may write to its statistics";
  if (PyTuple_GET_ITEM(args, kOwn) == Py_False) return {};
  const auto batches = [this](int level) { return own_.levels[static_cast<size_t>(level)].kind == Level::Kind::kVmap; };
  // What is written is no level's own: statistics have neither a history nor a tangent there.
  if (std::none_of(own_.open_levels.begin(), own_.open_levels.end(), batches)) return {};
  for (const Py_ssize_t place : {kMean, kVariance}) {
    PyObject* const written = PyTuple_GET_ITEM(args, place);
    if (written == Py_None) continue;
    const Ref operands = Ref::steal(PyTuple_Pack(2, written, PyTuple_GET_ITEM(args, 0)));
    if (std::string problem = level_write_problem(name, operands.get(), nullptr); !problem.empty()) return problem;
  }
  return {};
}

std::string TransformTracing::level_problem(const std::string& name, PyObject* args, PyObject* kwargs) const {
  if (own_.levels.size() == 1) return {};
  const bool in_place = name.size() > 1 && name.back() == '_' && name[name.size() - 2] != '_';
  const bool dunder = name == "__setitem__" || (name.rfind("__i", 0) == 0 && name != "__invert__");
  const bool out = kwargs != nullptr && PyDict_GetItemString(kwargs, "out") != nullptr;
  if (in_place || dunder || out) return level_write_problem(name, args, kwargs);
  if (!own_.open_levels.empty() && (name == "batch_norm" || name == "instance_norm")) {
    return statistics_problem(name, args, kwargs);
  }
  return {};
}

PyObject* TransformTracing::level_gradients(PyObject* outputs, PyObject* inputs, PyObject* given, bool keep,
                                            bool create) {
  Trace& t = *trace_;
  std::string problem;
  std::vector<int> roots, cotangents, variables;
  const std::vector<PyObject*> wanted = items_of(inputs);
  for (PyObject* each : items_of(outputs)) {
    if (problem.empty()) roots.push_back(transform_operand(each, problem));
  }
  for (PyObject* each : wanted) {
    if (problem.empty()) variables.push_back(transform_operand(each, problem));
  }
  if (roots.empty() || variables.empty()) problem = "gradients of nothing";
  const auto type_of = [&t](int slot) { return t.tape.slots()[static_cast<size_t>(slot)]; };
  static PyObject* const ones_like = attr(api_.torch.get(), "ones_like").release();
  const bool own = given == nullptr || given == Py_None;
  const std::vector<PyObject*> others = own ? std::vector<PyObject*>() : items_of(given);
  if (problem.empty() && !own && others.size() != roots.size())
    problem = "another number of cotangents than of outputs";
  for (size_t i = 0; problem.empty() && i < roots.size(); ++i) {
    Ref made;
    if (own) {
      const Ref operands = Ref::steal(PyTuple_Pack(1, items_of(outputs)[i]));
      made = Ref::steal(torch().torch_function(ones_like, operands.get(), nullptr));
      if (!made) return nullptr;
    }
    const int slot = transform_operand(own ? made.get() : others[i], problem);
    if (!problem.empty()) break;
    cotangents.push_back(slot);
    const Bypass bypass(bypass_);
    const TapeSlot a = type_of(roots[i]), b = type_of(slot);
    if (a.dtype.get() != b.dtype.get() || PyObject_RichCompareBool(a.sizes.get(), b.sizes.get(), Py_EQ) != 1) {
      problem = "a cotangent of another type than its output";
    }
  }
  if (!tracing()) return not_handled();
  if (!problem.empty()) return transform_break(problem);
  TapeNode node;
  auto& pass = node.kind.emplace<GradientPass>();
  pass.of_level = true;
  pass.keeps_history = keep;
  pass.creates_graph = create;
  node.name = "gradients";
  node.sequence = true;
  const auto by = [&](const std::vector<int>& some) {
    const Ref a = slots_of(roots), b = slots_of(cotangents), c = slots_of(some);
    set_pass_operands(node, a.get(), b.get(), c.get());
  };
  std::vector<std::optional<GradientLayout>> layouts;
  {
    const Bypass bypass(bypass_);
    by(variables);
    try {
      const std::shared_ptr<Tape> before = t.tape.detach(t.tape.nodes().size(), t.symbols.ctx().guards().size());
      layouts = t.graph.gradient_layouts(before, api_, node);
    } catch (const Error& error) {
      problem = error.message();
    }
    forget_error();
  }
  for (size_t i = 0; problem.empty() && i < variables.size(); ++i) {
    const TapeSlot info = type_of(variables[i]);
    if (layouts[i] && !knows_layout(info, layouts[i]->strides)) {
      problem = "a gradient whose layout depends on sizes that vary";
    }
  }
  if (!problem.empty()) return transform_break(problem);
  // Tensors that no gradient reaches get zeros.
  std::vector<int> reached;
  Ref results = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(wanted.size())));
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!layouts[i]) continue;
    const Bypass bypass(bypass_);
    Ref placeholder;
    const int slot = gradients().add_gradient(type_of(variables[i]), layouts[i]->strides, placeholder);
    if (!placeholder) return nullptr;
    t.tape.set_level(slot, innermost());
    reached.push_back(variables[i]);
    pass.histories.push_back(create && layouts[i]->history);
    node.outputs.push_back(slot);
    PyTuple_SET_ITEM(results.get(), static_cast<Py_ssize_t>(i), Py_NewRef(placeholder.get()));
  }
  if (!reached.empty()) {
    const Bypass bypass(bypass_);
    by(reached);
    node.func = package_function(PackageFunction::kTransformGradients);
    note_modes(node);
    node.location = user_location();
    t.tape.add_node(std::move(node));
  }
  static PyObject* const zeros_like = attr(api_.torch.get(), "zeros_like").release();
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (layouts[i]) continue;
    const Ref operands = Ref::steal(PyTuple_Pack(1, wanted[i]));
    PyObject* zeros = torch().torch_function(zeros_like, operands.get(), nullptr);
    if (zeros == nullptr) return nullptr;
    PyTuple_SET_ITEM(results.get(), static_cast<Py_ssize_t>(i), zeros);
  }
  return results.release();
}

/// Before a switch of the host's is thrown; `reader` tells how it stands.
void TransformTracing::keep_switch(PyObject* callable, const char* reader) {
  const ErrorAside aside;
  const Ref functorch = attr_or_null(api_.core.get(), "_functorch");
  Ref now;
  for (PyObject* place : {api_.core.get(), functorch.get()}) {
    if (!now && place != nullptr) now = Ref::steal(PyObject_CallMethod(place, reader, nullptr));
    forget_error();
  }
  if (!now) return trace_->transaction.lose("a switch that cannot be read");
  trace_->transaction.on_undo([switch_ = Ref::borrow(callable), now] {
    return static_cast<bool>(Ref::steal(PyObject_CallOneArg(switch_.get(), now.get())));
  });
}

PyObject* TransformTracing::transform_call(TransformCall kind, PyObject* callable, PyObject* const* raw,
                                           Py_ssize_t nargs, PyObject* kwnames) {
  Trace& t = *trace_;
  using Kind = Level::Kind;
  const CallArgs args(raw, nargs, kwnames);
  switch (kind) {
    case TransformCall::kNone: return not_handled();
    case TransformCall::kEnterGrad: {
      Level level;
      level.kind = Kind::kGrad;
      return enter_level(host_call(callable), std::move(level), api_.empty_tuple, "enter_grad");
    }
    case TransformCall::kEnterJvp: {
      Level level;
      level.kind = Kind::kJvp;
      return enter_level(package_function(PackageFunction::kEnterJvp), std::move(level), api_.empty_tuple, "enter_jvp");
    }
    case TransformCall::kEnterVmap: {
      Level level;
      level.kind = Kind::kVmap;
      PyObject *size = args.get(0, "batch_size"), *randomness = args.get(1, "randomness");
      if (size == nullptr || randomness == nullptr || !(PyLong_Check(size) || is_symbolic_int(size))) {
        return transform_break("a batch of unknown size");
      }
      const Ref number = is_symbolic_int(size) ? make_size_ref(symbolic_expr(size), t.symbols) : Ref::borrow(size);
      return enter_level(package_function(PackageFunction::kEnterVmap), std::move(level),
                         Ref::steal(PyTuple_Pack(2, number.get(), randomness)), "enter_vmap");
    }
    case TransformCall::kEnterDual: return enter_dual(callable);
    case TransformCall::kExitDual: return exit_dual(callable);
    case TransformCall::kBatchIn:
      return batch_in(callable, args.get(0, "self"), args.number(1, "batch_dim"), args.number(2, "level"));
    case TransformCall::kBatchOut:
      return batch_out(callable, args.get(0, "self"), args.number(1, "level"), args.get(2, "batch_size"),
                       args.number(3, "out_dim"));
    case TransformCall::kIsBatched: {
      const int slot = nargs > 0 ? t.tape.find(raw[0]) : -1;
      if (slot < 0 || innermost() == 0) return not_handled();
      return PyBool_FromLong(is_batched(slot, innermost()) ? 1 : 0);
    }
    case TransformCall::kMakeDual:
      return make_dual(callable, args.get(0, "tensor"), args.get(1, "tangent"), std::max(args.number(2, "level"), 0));
    case TransformCall::kUnpackDual:
      return unpack_dual(callable, args.get(0, "tensor"), std::max(args.number(1, "level"), 0));
    case TransformCall::kForwardSwitch:
      // Thrown for real, and back by the transform itself; a run of the tape does it where it enters the level.
      keep_switch(callable, "_is_fwd_grad_enabled");
      return PyObject_Vectorcall(callable, raw, static_cast<size_t>(nargs), kwnames);
    case TransformCall::kOldVmap: {
      const std::string name = text_of(attr_or_null(callable, "__name__").get());
      const char* back =
          name == "_vmapmode_increment_nesting" ? "_vmapmode_decrement_nesting" : "_vmapmode_increment_nesting";
      t.transaction.on_undo([other = attr_or_null(api_.core.get(), back)] {
        return static_cast<bool>(Ref::steal(PyObject_CallNoArgs(other.get())));
      });
      return PyObject_Vectorcall(callable, raw, static_cast<size_t>(nargs), kwnames);
    }
    case TransformCall::kLoadRules: Py_RETURN_NONE;  // with the first level that a run enters
    case TransformCall::kExit: {
      const bool forward = innermost() != 0 && own_.levels[static_cast<size_t>(innermost())].kind == Kind::kJvp;
      return exit_level(forward ? package_function(PackageFunction::kExitJvp) : host_call(callable), api_.empty_tuple);
    }
    case TransformCall::kWrap: return wrap_tensor(callable, args.get(0, "tensor"), args.number(1, "level"));
    case TransformCall::kUnwrap: return unwrap_tensor(callable, args.get(0, "tensor"), args.number(1, "level"));
    case TransformCall::kAllowVariables:
      if (own_.open_levels.empty()) return not_handled();
      own_.variables_allowed = args.get(0, "allowed") == Py_True;
      keep_switch(callable, "get_inplace_requires_grad_allowed");
      return PyObject_Vectorcall(callable, raw, static_cast<size_t>(nargs), kwnames);  // in case of a graph break
    case TransformCall::kGradients:
      return level_gradients(args.get(0, "outputs"), args.get(1, "inputs"), args.get(2, "grad_outputs"),
                             args.flag(3, "retain_graph", false), args.flag(4, "create_graph", true));
    case TransformCall::kCheckpoint: return checkpoints().enter_checkpoint(callable, raw, nargs, kwnames);
    case TransformCall::kReentrant: return checkpoints().enter_reentrant(raw, nargs, kwnames);
    case TransformCall::kRegion: return checkpoints().make_region(raw, nargs, kwnames);
    case TransformCall::kRegionMark: return nargs == 2 ? checkpoints().mark_region(raw[0], raw[1]) : not_handled();
    case TransformCall::kUnwrapDead:
      // What a trace records is no tensor of a level that has ended.
      return nargs == 1 && api_.is_plain_tensor(raw[0]) ? Py_NewRef(raw[0]) : not_handled();
    case TransformCall::kLinearize: return linearize(raw, nargs, kwnames);
    case TransformCall::kRecord: return nargs == 2 ? record_calls(raw[0], raw[1]) : not_handled();
    case TransformCall::kChoose: return nargs == 4 ? choose_calls(raw) : not_handled();
    case TransformCall::kReplay: return nargs == 3 ? replay_calls(raw[0], raw[1], raw[2]) : not_handled();
    case TransformCall::kAttachBackward: return nargs == 4 ? functions().attach_backward(callable, raw) : not_handled();
    case TransformCall::kStop:
      return graph_break("autograd.Function: " + text_of(nargs == 1 ? raw[0] : nullptr)) ? not_handled() : nullptr;
    case TransformCall::kAsksOpen: return open() == 0 ? not_handled() : Py_NewRef(Py_True);
    case TransformCall::kAsks:
      return own_.levels.size() == 1 ? not_handled() : transform_break("a question about the levels of tensors");
  }
  return not_handled();
}

}  // namespace tatara::capture
