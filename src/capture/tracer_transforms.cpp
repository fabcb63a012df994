// torch.func's transforms while a trace is open. Their Python code runs as any other; its calls of the host's levels become
// nodes of the tape, which does the same when it runs as it stands.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "capture/tracer_internal.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

struct Name {
  const char* file;  // of Python functions, its end; null: C code of torch._C or torch._C._functorch
  const char* name;
  TransformCall call;
};

constexpr Name kNames[] = {
    {nullptr, "_grad_increment_nesting", TransformCall::kEnterGrad},
    {nullptr, "_grad_decrement_nesting", TransformCall::kExit},
    {nullptr, "_wrap_for_grad", TransformCall::kWrap},
    {nullptr, "_unwrap_for_grad", TransformCall::kUnwrap},
    {nullptr, "set_inplace_requires_grad_allowed", TransformCall::kAllowVariables},
    {"/torch/_functorch/predispatch.py", "_unwrap_for_grad", TransformCall::kUnwrap},
    {"/torch/_functorch/eager_transforms.py", "_autograd_grad", TransformCall::kGradients},
};

/// What tells of levels that the trace has not entered.
bool asks_for_levels(std::string_view name) {
  return name == "_are_functorch_transforms_active" || name == "is_gradtrackingtensor" ||
         name == "is_functorch_wrapped_tensor" || name == "get_unwrapped" || name == "maybe_get_level" ||
         name == "maybe_get_bdim" || name == "current_level" || name == "maybe_current_level" ||
         name == "peek_interpreter_stack" || name == "get_interpreter_stack" ||
         name == "get_dynamic_layer_stack_depth" || name == "_unwrap_batched" || name == "is_batchedtensor";
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
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
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
    if (PyList_Append(list.get(), make_slot_ref(slot).get()) != 0) PyErr_Clear();
  }
  return list;
}

Ref helper(const char* name) {
  const Ref module = Ref::steal(PyImport_ImportModule("tatara._transforms"));
  Ref found = module ? attr_or_null(module.get(), name) : Ref();
  if (!found) throw InternalError("tatara._transforms cannot be imported");
  return found;
}

/// Strides of a gradient by a tensor whose sizes vary, which are `now` in this call; empty: not known for others.
std::vector<Expr> gradient_layout(const TapeSlot& variable, const std::vector<int64_t>& now) {
  ExprContext& ctx = variable.symbolic_sizes.front().context();
  for (const std::vector<Expr>& strides :
       {contiguous_strides(ctx, variable.symbolic_sizes), variable.symbolic_strides}) {
    bool same = strides.size() == now.size();
    for (size_t i = 0; same && i < now.size(); ++i) same = ctx.evaluate_hint(strides[i]) == now[i];
    if (same) return strides;
  }
  return {};
}

std::vector<PyObject*> items_of(PyObject* sequence) {
  std::vector<PyObject*> items;
  if (sequence == nullptr || !(PyTuple_Check(sequence) || PyList_Check(sequence))) return items;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i)
    items.push_back(PySequence_Fast_GET_ITEM(sequence, i));
  return items;
}

}  // namespace

TransformCall transform_call_of(PyObject* callable) {
  if (PyFunction_Check(callable)) {
    const auto* code = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(callable));
    const char* name = PyUnicode_AsUTF8(code->co_name);
    if (name == nullptr || name[0] != '_') return TransformCall::kNone;
    for (const Name& each : kNames) {
      if (each.file == nullptr || std::strcmp(name, each.name) != 0) continue;
      const std::string file = text_of(code->co_filename);
      if (std::string_view(file).ends_with(each.file)) return each.call;
    }
    return TransformCall::kNone;
  }
  if (!PyCFunction_Check(callable)) return TransformCall::kNone;
  const auto* f = reinterpret_cast<PyCFunctionObject*>(callable);
  const std::string module = text_of(f->m_module);
  if (module != "torch._C._functorch" && module != "torch._C") return TransformCall::kNone;
  for (const Name& each : kNames) {
    if (each.file == nullptr && std::strcmp(f->m_ml->ml_name, each.name) == 0) return each.call;
  }
  return asks_for_levels(f->m_ml->ml_name) ? TransformCall::kAsks : TransformCall::kNone;
}

/// The slot of a tensor that a level is given, or -1 after `problem` was set.
int Tracer::transform_operand(PyObject* tensor, std::string& problem) {
  const Bypass bypass(bypass_);
  int slot = -1;
  if (tensor == nullptr || !api_.is_plain_tensor(tensor) || api_.is_numpy(tensor)) {
    problem = tensor != nullptr && api_.is_tensor(tensor) ? "a tensor subclass in a transform" : "no tensor";
  } else if (TensorMeta meta; trace_->tape.find(tensor) < 0 && !api_.read_meta(tensor, meta)) {
    problem = api_.why_not(tensor);
  } else {
    slot = slot_for(tensor);
    if (slot < 0) problem = "a tensor without meta form";
  }
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  return slot;
}

/// A placeholder of the type of another slot.
int Tracer::placeholder_like(int slot, int level) {
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

void Tracer::record_step(FuncStep step, const char* name, Ref func, Ref args, std::vector<int> outputs,
                         std::vector<bool> histories) {
  Trace& t = *trace_;
  const Bypass bypass(bypass_);
  TapeNode node;
  node.histories = std::move(histories);
  node.step = step;
  node.name = name;
  node.func = std::move(func);
  node.args = std::move(args);
  node.outputs = std::move(outputs);
  node.sequence = step == FuncStep::kGradients || step == FuncStep::kUnpackDual;
  note_modes(node);
  user_location(node.file, node.function, node.line);
  t.tape.add_node(std::move(node));
}

void Tracer::note_modes(TapeNode& node) const {
  const Trace& t = *trace_;
  node.mode = api_.grad_enabled();
  node.level = t.level();
  node.grad = node.mode && std::all_of(t.open_levels.begin(), t.open_levels.end(),
                                       [&t](int level) { return t.levels[static_cast<size_t>(level)].outer_grad; });
}

/// Breaks the graph, then lets the VM go on: not_handled(), or null with an error.
PyObject* Tracer::transform_break(const std::string& reason) {
  return graph_break("torch.func: " + reason) ? not_handled() : nullptr;
}

PyObject* Tracer::enter_level(PyObject* callable, Level level, Ref args, const char* name) {
  Trace& t = *trace_;
  std::string problem;
  {
    const Bypass bypass(bypass_);
    if (Ref::steal(PyObject_CallNoArgs(api_.is_inference.get())).get() == Py_True) problem = "in inference mode";
    level.outer_grad = api_.grad_enabled();
    if (!level.outer_grad && !t.open_levels.empty()) {
      problem = "a transform inside of another where gradients are switched off";
    }
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
  }
  if (!problem.empty()) return transform_break(problem);
  level.number = static_cast<int>(t.open_levels.size()) + 1;
  record_step(FuncStep::kEnter, name, Ref::borrow(callable), std::move(args), {});
  t.levels.push_back(std::move(level));
  t.open_levels.push_back(static_cast<int>(t.levels.size()) - 1);
  return PyLong_FromLong(t.levels.back().number);
}

PyObject* Tracer::exit_level(PyObject* callable, Ref args) {
  Trace& t = *trace_;
  if (t.open_levels.empty()) return transform_break("a level ends that the trace has not entered");
  record_step(FuncStep::kExit, "exit_level", Ref::borrow(callable), std::move(args), {});
  t.open_levels.pop_back();
  return PyLong_FromLong(t.levels.size() > 1 ? static_cast<long>(t.open_levels.size()) + 1 : 0);
}

/// The open level with torch's number, as a place in `levels`; 0: none.
int Tracer::open_level(int number) const {
  const Trace& t = *trace_;
  for (const int level : t.open_levels) {
    if (t.levels[static_cast<size_t>(level)].number == number) return level;
  }
  return 0;
}

PyObject* Tracer::wrap_tensor(PyObject* callable, PyObject* tensor, int number) {
  Trace& t = *trace_;
  std::string problem;
  const int level = open_level(number);
  const int slot = transform_operand(tensor, problem);
  if (level == 0 || level != t.level()) problem = "a tensor is given to a level that is not the innermost one";
  if (!problem.empty()) return transform_break(problem);
  const int made = placeholder_like(slot, level);
  if (made < 0) return nullptr;
  t.wraps[made] = slot;
  const Ref ref = make_slot_ref(slot), count = Ref::steal(PyLong_FromLong(number));
  record_step(FuncStep::kWrap, "wrap", Ref::borrow(callable), Ref::steal(PyTuple_Pack(2, ref.get(), count.get())),
              {made});
  return Py_NewRef(t.tape.slots()[static_cast<size_t>(made)].object.get());
}

PyObject* Tracer::unwrap_tensor(PyObject* callable, PyObject* tensor, int number) {
  Trace& t = *trace_;
  std::string problem;
  const int level = open_level(number);
  const int slot = transform_operand(tensor, problem);
  if (level == 0 || level != t.level()) problem = "a tensor leaves a level that is not the innermost one";
  if (!problem.empty()) return transform_break(problem);
  const TapeSlot& info = t.tape.slots()[static_cast<size_t>(slot)];
  if (info.level != level) return Py_NewRef(tensor);
  if (const auto wrapped = t.wraps.find(slot); wrapped != t.wraps.end()) {
    return Py_NewRef(t.tape.slots()[static_cast<size_t>(wrapped->second)].object.get());
  }
  const int parent = t.open_levels.size() > 1 ? t.open_levels[t.open_levels.size() - 2] : 0;
  const int made = placeholder_like(slot, parent);
  if (made < 0) return nullptr;
  const Ref ref = make_slot_ref(slot), count = Ref::steal(PyLong_FromLong(number));
  // A function in Python has its C function beside it.
  Ref func = Ref::borrow(callable);
  if (PyFunction_Check(callable)) {
    PyObject* impl = PyDict_GetItemString(PyFunction_GET_GLOBALS(callable), "_unwrap_for_grad_impl");
    if (impl != nullptr) func = Ref::borrow(impl);
  }
  record_step(FuncStep::kUnwrap, "unwrap", std::move(func), Ref::steal(PyTuple_Pack(2, ref.get(), count.get())),
              {made});
  return Py_NewRef(t.tape.slots()[static_cast<size_t>(made)].object.get());
}

/// requires_grad_() of a tensor that a transform has just wrapped.
bool Tracer::make_variable(PyObject* args, PyObject* kwargs) {
  Trace& t = *trace_;
  if (!t.variables_allowed || kwargs != nullptr || PyTuple_GET_SIZE(args) != 1) return false;
  const int slot = t.tape.find(PyTuple_GET_ITEM(args, 0));
  if (slot < 0 || t.tape.slots()[static_cast<size_t>(slot)].level != t.level() || !t.wraps.contains(slot)) return false;
  {
    const Bypass bypass(bypass_);
    const DType dtype = dtype_of(t.tape.slots()[static_cast<size_t>(slot)].dtype.get());
    if (!is_floating(dtype) && !is_complex(dtype)) return false;
  }
  const Ref ref = make_slot_ref(slot);
  record_step(FuncStep::kVariable, "variable", helper("variable"), Ref::steal(PyTuple_Pack(1, ref.get())), {});
  return true;
}

std::string Tracer::level_write_problem(const std::string& name, PyObject* args, PyObject* kwargs) const {
  const Trace& t = *trace_;
  if (t.levels.size() == 1) return {};
  PyObject* target = kwargs != nullptr ? PyDict_GetItemString(kwargs, "out") : nullptr;
  if (target == nullptr && PyTuple_GET_SIZE(args) > 0) target = PyTuple_GET_ITEM(args, 0);
  const int slot = target != nullptr && api_.is_tensor(target) ? t.tape.find(target) : -1;
  if (t.open_levels.empty()) {
    const bool leftover = slot >= 0 && t.tape.slots()[static_cast<size_t>(slot)].level != 0;
    return leftover ? name + " on a tensor of a transform that has ended" : std::string();
  }
  if (slot < 0) return name + " on a tensor from outside of the transform";
  const int made = t.tape.slots()[static_cast<size_t>(slot)].level;
  const auto place = [&t](int level) {
    return std::find(t.open_levels.begin(), t.open_levels.end(), level) - t.open_levels.begin();
  };
  const auto count = static_cast<std::ptrdiff_t>(t.open_levels.size());
  const std::ptrdiff_t depth = made == 0 ? -1 : place(made);
  if (depth == count) return name + " on a tensor of a transform that has ended";
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const Level& level = t.levels[static_cast<size_t>(t.open_levels[static_cast<size_t>(i)])];
    if (level.kind != Level::Kind::kVmap && depth < i) return name + " on a tensor from outside of the transform";
  }
  for (const TapeNode& node : t.tape.nodes()) {
    if (node.step == FuncStep::kVariable && slot_of(PyTuple_GET_ITEM(node.args.get(), 0)) == slot) {
      return name + " on a tensor that gradients are asked by";
    }
  }
  return {};
}

std::string Tracer::level_problem(const std::string& name, PyObject* args, PyObject* kwargs) const {
  if (trace_->levels.size() == 1) return {};
  const bool in_place = name.size() > 1 && name.back() == '_' && name[name.size() - 2] != '_';
  const bool dunder = name == "__setitem__" || (name.rfind("__i", 0) == 0 && name != "__invert__");
  const bool out = kwargs != nullptr && PyDict_GetItemString(kwargs, "out") != nullptr;
  if (in_place || dunder || out) return level_write_problem(name, args, kwargs);
  if (!trace_->open_levels.empty() && (name == "batch_norm" || name == "instance_norm")) {
    return name + " inside of a transform: it may write to its statistics";
  }
  return {};
}

PyObject* Tracer::level_gradients(PyObject* outputs, PyObject* inputs, PyObject* given, bool keep, bool create) {
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
      made = Ref::steal(torch_function(ones_like, operands.get(), nullptr));
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
  const auto arguments = [&](const std::vector<int>& by) {
    const auto flag = [](bool set) { return set ? Py_True : Py_False; };
    const Ref a = slots_of(roots), b = slots_of(cotangents), c = slots_of(by);
    return Ref::steal(PyTuple_Pack(6, a.get(), b.get(), c.get(), flag(keep), Py_False, flag(create)));
  };
  std::vector<std::optional<GradientLayout>> layouts;
  {
    const Bypass bypass(bypass_);
    TapeNode node;
    node.step = FuncStep::kGradients;
    node.name = "gradients";
    node.args = arguments(variables);
    try {
      const std::shared_ptr<Tape> before = t.tape.detach(t.tape.nodes().size(), t.symbols.ctx().guards().size());
      layouts = gradient_layouts(*before, api_, node);
    } catch (const Error& error) {
      problem = error.message();
    }
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
  }
  for (size_t i = 0; problem.empty() && i < variables.size(); ++i) {
    const TapeSlot info = type_of(variables[i]);
    if (layouts[i] && !info.symbolic_sizes.empty() && gradient_layout(info, layouts[i]->strides).empty()) {
      problem = "a gradient whose layout depends on sizes that vary";
    }
  }
  if (!problem.empty()) return transform_break(problem);
  // Tensors that no gradient reaches get zeros.
  std::vector<int> reached, made;
  std::vector<bool> histories;
  Ref results = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(wanted.size())));
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!layouts[i]) continue;
    const Bypass bypass(bypass_);
    const TapeSlot info = type_of(variables[i]);
    const Ref strides = int_tuple(layouts[i]->strides);
    const Ref placeholder = api_.empty_meta(info.sizes.get(), strides.get(), info.dtype.get());
    if (!placeholder) return nullptr;
    const int slot = t.tape.add_placeholder(placeholder.get(), info.device);
    if (!info.symbolic_sizes.empty()) {
      t.tape.set_layout(slot, info.symbolic_sizes, gradient_layout(info, layouts[i]->strides));
    }
    t.tape.set_level(slot, t.level());
    reached.push_back(variables[i]);
    histories.push_back(create && layouts[i]->history);
    made.push_back(slot);
    PyTuple_SET_ITEM(results.get(), static_cast<Py_ssize_t>(i), Py_NewRef(placeholder.get()));
  }
  if (!made.empty()) {
    record_step(FuncStep::kGradients, "gradients", helper("gradients"), arguments(reached), std::move(made),
                std::move(histories));
  }
  static PyObject* const zeros_like = attr(api_.torch.get(), "zeros_like").release();
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (layouts[i]) continue;
    const Ref operands = Ref::steal(PyTuple_Pack(1, wanted[i]));
    PyObject* zeros = torch_function(zeros_like, operands.get(), nullptr);
    if (zeros == nullptr) return nullptr;
    PyTuple_SET_ITEM(results.get(), static_cast<Py_ssize_t>(i), zeros);
  }
  return results.release();
}

PyObject* Tracer::transform_call(TransformCall kind, PyObject* callable, PyObject* const* raw, Py_ssize_t nargs,
                                 PyObject* kwnames) {
  Trace& t = *trace_;
  using Kind = Level::Kind;
  const CallArgs args(raw, nargs, kwnames);
  switch (kind) {
    case TransformCall::kNone: return not_handled();
    case TransformCall::kEnterGrad: {
      Level level;
      level.kind = Kind::kGrad;
      return enter_level(callable, std::move(level), api_.empty_tuple, "enter_grad");
    }
    case TransformCall::kExit: return exit_level(callable, api_.empty_tuple);
    case TransformCall::kWrap: return wrap_tensor(callable, args.get(0, "tensor"), args.number(1, "level"));
    case TransformCall::kUnwrap: return unwrap_tensor(callable, args.get(0, "tensor"), args.number(1, "level"));
    case TransformCall::kAllowVariables:
      if (t.open_levels.empty()) return not_handled();
      t.variables_allowed = args.get(0, "allowed") == Py_True;
      return PyObject_Vectorcall(callable, raw, static_cast<size_t>(nargs), kwnames);  // in case of a graph break
    case TransformCall::kGradients:
      return level_gradients(args.get(0, "outputs"), args.get(1, "inputs"), args.get(2, "grad_outputs"),
                             args.flag(3, "retain_graph", false), args.flag(4, "create_graph", true));
    case TransformCall::kAsks:
      return t.levels.size() == 1 ? not_handled() : transform_break("a question about the levels of tensors");
  }
  return not_handled();
}

}  // namespace tatara::capture
