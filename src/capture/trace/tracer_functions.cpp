// Functions with a backward of the user's (torch.autograd.Function) while a trace is open. Their forward is recorded without
// gradients, as the host runs it; one more step gives the results their history. In the run of the open trace that is a node
// of the host's with the user's own backward. For the graph the backward is traced ahead, on cotangents that nobody has: what
// it records comes off the tape again and becomes the step's rule.
#include <algorithm>
#include <cstring>

#include "capture/host/known_calls.h"
#include "capture/host/package.h"
#include "capture/trace/call_tracing.h"
#include "capture/trace/function_tracing.h"
#include "capture/trace/gradient_tracing.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/write_tracing.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

bool is_in(PyObject* tuple, PyObject* object) {
  for (Py_ssize_t i = 0; tuple != nullptr && PyTuple_Check(tuple) && i < PyTuple_GET_SIZE(tuple); ++i) {
    if (PyTuple_GET_ITEM(tuple, i) == object) return true;
  }
  return false;
}

/// A backward that the host differentiates only once.
bool is_once(PyObject* cls) {
  const Ref backward = attr_or_null(cls, "backward");
  if (!backward || !PyFunction_Check(backward.get())) return false;
  return known_code(reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(backward.get()))).code == KnownCode::kOnce;
}

}  // namespace

bool same_type(const TapeSlot& a, const TapeSlot& b) {
  return a.dtype.get() == b.dtype.get() && PyObject_RichCompareBool(a.sizes.get(), b.sizes.get(), Py_EQ) == 1 &&
         a.symbolic_sizes == b.symbolic_sizes;
}

bool is_of_functions(const PyTypeObject* type) {
  while (type != nullptr && std::strstr(type->tp_name, "_FunctionBase") == nullptr) type = type->tp_base;
  return type != nullptr;
}

bool FunctionTracing::is_function_apply(PyObject* callable) {
  if (!PyCFunction_Check(callable)) return false;
  const auto* f = reinterpret_cast<PyCFunctionObject*>(callable);
  if (f->m_self == nullptr || !PyType_Check(f->m_self)) return false;
  return is_of_functions(reinterpret_cast<PyTypeObject*>(f->m_self));
}

/// Whether code that is to run in the backward can be traced here.
bool FunctionTracing::takes_backwards() const {
  return !owner_.backend && !owner_.eager_backend && !context_.dry_run && context_.ahead == nullptr &&
         transforms().open() == 0 && !AutocastState::read(api_).any;
}

/// Runs our `apply` in place of the host's.
PyObject* FunctionTracing::apply_function(PyObject* callable, PyObject* const* args, Py_ssize_t nargs) {
  Trace& t = *trace_;
  Ref arguments, needs;
  {
    const Bypass bypass(bypass_);
    if (!takes_backwards()) return not_handled();
    arguments = Ref::steal(PyTuple_New(nargs));
    needs = Ref::steal(PyTuple_New(nargs));
    for (Py_ssize_t i = 0; i < nargs; ++i) {
      PyTuple_SET_ITEM(arguments.get(), i, Py_NewRef(args[i]));
      PyObject* need = Py_False;
      if (api_.is_tensor(args[i])) {
        TensorMeta meta;
        const bool known = api_.is_plain_tensor(args[i]) && !api_.is_numpy(args[i]) &&
                           (t.tape.find(args[i]) >= 0 || api_.read_meta(args[i], meta));
        const int slot = known ? slot_for(args[i]) : -1;
        const NeedsGrad answer =
            slot < 0 || gradients().is_stopped(slot) ? NeedsGrad::kUnknown : histories().needs_grad(slot);
        forget_error();
        if (answer == NeedsGrad::kUnknown) return not_handled();
        if (answer == NeedsGrad::kYes) need = Py_True;
        t.guard.check_grad = true;
      }
      PyTuple_SET_ITEM(needs.get(), i, Py_NewRef(need));
    }
  }
  mark_born(arguments.get());
  const Ref ours = package_function(PackageFunction::kFunctionApply);
  return PyObject_CallFunctionObjArgs(ours.get(), reinterpret_cast<PyCFunctionObject*>(callable)->m_self, needs.get(),
                                      arguments.get(), nullptr);
}

PyObject* FunctionTracing::call_forward(const TracedCall& call) {
  Py_ssize_t first = 0;  // behind the operator itself
  while (first < call.nargs() && !PyType_Check(call.args[first])) ++first;
  if (first > 1 || first == call.nargs() || call.keywords() > 0 || transforms().open() == 0 ||
      transforms().open() != transforms().open_levels().size() || !transforms().only_batches()) {
    return not_handled();
  }
  Ref forward, arguments;
  {
    const Bypass bypass(bypass_);
    PyObject* const cls = call.args[first];
    if (attr_or_null(cls, "generate_vmap_rule").get() != Py_True) return not_handled();
    bool constant = true;
    const auto look = [&](PyObject* o) -> Ref {
      if (!api_.is_tensor(o)) return Ref::borrow(o);
      const int slot = api_.is_plain_tensor(o) ? slot_for(o) : -1;
      if (slot < 0) {
        constant = false;
        return Ref::borrow(o);
      }
      const DType dtype = dtype_of(trace_->tape.slots()[static_cast<size_t>(slot)].dtype.get());
      constant = constant && ((!is_floating(dtype) && !is_complex(dtype)) || !api_.grad_enabled() ||
                              histories().needs_grad(slot) == NeedsGrad::kNo);
      return Ref::borrow(o);
    };
    arguments = Ref::steal(PyTuple_New(call.nargs() - first - 1));
    for (Py_ssize_t i = first + 1; i < call.nargs(); ++i) {
      map_structure(call.args[i], look);
      PyTuple_SET_ITEM(arguments.get(), i - first - 1, Py_NewRef(call.args[i]));
    }
    forward = attr_or_null(cls, "forward");
    forget_error();
    if (!constant || !forward) return not_handled();
    trace_->guard.check_grad = true;
  }
  mark_born(arguments.get());
  return PyObject_Call(forward.get(), arguments.get(), nullptr);
}

/// Why the trace cannot do it; empty: it can, or there is nothing to do (no outputs).
std::string FunctionTracing::read_function_call(PyObject* outputs, FunctionCall& call) {
  Trace& t = *trace_;
  const Ref needs = attr(call.context, "needs_input_grad");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(needs.get()); ++i) {
    if (PyTuple_GET_ITEM(needs.get(), i) == Py_True) call.places.push_back(static_cast<int>(i));
  }
  if (call.places.empty() || !api_.grad_enabled()) return {};
  const Ref constant = attr_or_null(call.context, "non_differentiable");
  const Ref materialize = attr_or_null(call.context, "materialize_grads");
  const Ref dirty = attr_or_null(call.context, "dirty_tensors");
  forget_error();
  if (dirty && dirty.get() != Py_None) return "it writes to its arguments";
  call.materialize = !materialize || materialize.get() != Py_False;
  if (PyTuple_Check(outputs)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(outputs); ++i) call.results.push_back(PyTuple_GET_ITEM(outputs, i));
  } else {
    call.results.push_back(outputs);
  }
  for (PyObject* result : call.results) {
    call.follows.push_back(false);
    if (!api_.is_tensor(result) || is_in(constant.get(), result)) continue;
    const int slot = api_.is_plain_tensor(result) ? t.tape.find(result) : -1;
    if (!t.tape.makes(slot)) return "a result that it has not made";
    const DType dtype = dtype_of(t.tape.slots()[static_cast<size_t>(slot)].dtype.get());
    if (!is_floating(dtype) && !is_complex(dtype)) continue;
    if (histories().needs_grad(slot) != NeedsGrad::kNo && !histories().is_silent_view(slot))
      return "a result with a history of its own";
    if (std::find(call.outputs.begin(), call.outputs.end(), slot) != call.outputs.end()) return "one result twice";
    call.outputs.push_back(slot);
    call.follows.back() = true;
  }
  if (call.outputs.empty()) return {};
  if (!call.materialize && call.outputs.size() > 1) return "it wants to know which results have no gradient";
  if (is_once(call.cls)) return "its backward is marked with once_differentiable";
  return {};
}

/// A cotangent per result, as the user's backward gets it; null with a Python error set.
Ref FunctionTracing::make_cotangents(const FunctionCall& call, CustomBackward& made) {
  Trace& t = *trace_;
  static PyObject* const zeros_like = attr(api_.torch.get(), "zeros_like").release();
  Ref cotangents = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(call.results.size())));
  for (size_t i = 0; i < call.results.size(); ++i) {
    Ref cotangent = Ref::borrow(Py_None);
    if (call.follows[i]) {
      const Bypass bypass(bypass_);
      const TapeSlot info = t.tape.slots()[static_cast<size_t>(t.tape.find(call.results[i]))];
      ExprContext& ctx = t.symbols.ctx();
      std::vector<Expr> sizes = info.symbolic_sizes;
      for (Py_ssize_t k = 0; info.symbolic_sizes.empty() && k < PyTuple_GET_SIZE(info.sizes.get()); ++k) {
        sizes.push_back(ctx.constant(PyLong_AsLongLong(PyTuple_GET_ITEM(info.sizes.get(), k))));
      }
      const std::vector<Expr> strides = contiguous_strides(ctx, sizes);
      std::vector<int64_t> steps;
      for (const Expr e : strides) steps.push_back(ctx.evaluate_hint(e).value());
      const Ref stride = int_tuple(steps);
      cotangent = api_.empty_meta(info.sizes.get(), stride.get(), info.dtype.get());
      if (!cotangent) return {};
      made.cotangents.push_back(t.tape.add_placeholder(cotangent.get(), info.device));
      t.tape.set_layout(made.cotangents.back(), sizes, strides);
    } else if (call.materialize && api_.is_tensor(call.results[i])) {
      const Ref operands = Ref::steal(PyTuple_Pack(1, call.results[i]));
      cotangent = Ref::steal(torch().torch_function(zeros_like, operands.get(), nullptr));
      if (!cotangent) return {};
    }
    PyTuple_SET_ITEM(cotangents.get(), static_cast<Py_ssize_t>(i), cotangent.release());
  }
  return cotangents;
}

/// The gradients that the user's backward returned; why they are not what a graph can do, or empty.
std::string FunctionTracing::read_function_gradients(PyObject* returned, const FunctionCall& call,
                                                     CustomBackward& made) {
  Trace& t = *trace_;
  const Ref single = Ref::steal(PyTuple_Check(returned) ? Py_NewRef(returned) : PyTuple_Pack(1, returned));
  const Py_ssize_t count = PyTuple_GET_SIZE(single.get()), wanted = PyTuple_GET_SIZE(call.args);
  if (count < wanted) return "another number of gradients than of arguments";
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* gradient = PyTuple_GET_ITEM(single.get(), i);
    PyObject* operand = i < wanted ? PyTuple_GET_ITEM(call.args, i) : Py_None;
    if (gradient != Py_None && (!api_.is_tensor(operand) || !api_.is_tensor(gradient)))
      return "a gradient of no tensor";
    if (std::find(call.places.begin(), call.places.end(), static_cast<int>(i)) == call.places.end()) continue;
    made.operands.push_back(t.tape.find(operand));
    made.gradients.push_back(-1);
    if (gradient == Py_None) continue;
    const int slot = api_.is_plain_tensor(gradient) ? slot_for(gradient) : -1;
    if (slot < 0) return "a gradient that is not supported";
    const TapeSlot a = t.tape.slots()[static_cast<size_t>(slot)];
    const TapeSlot b = t.tape.slots()[static_cast<size_t>(made.operands.back())];
    if (!same_type(a, b)) return "a gradient of another type than its argument";
    made.gradients.back() = slot;
  }
  return {};
}

/// What of the backward's own steps cannot be part of a rule; empty: nothing.
std::string FunctionTracing::function_nodes_problem(const FunctionCall& call, const CustomBackward& made,
                                                    size_t slots) const {
  const Tape& tape = trace_->tape;
  std::string problem;
  const auto known = [&](int slot) {
    return std::find(made.operands.begin(), made.operands.end(), slot) != made.operands.end() ||
           std::find(call.outputs.begin(), call.outputs.end(), slot) != call.outputs.end();
  };
  for (const TapeNode& node : made.nodes) {
    if (!is_operator_call(node)) return node.name + " inside of it";
    const auto look = [&](int slot) {
      const TapeSlot& info = tape.slots()[static_cast<size_t>(slot)];
      const bool older = static_cast<size_t>(slot) < slots || info.input;
      if (!older || known(slot) || !problem.empty()) return;
      // Its gradient would be one more than those of the arguments.
      if (histories().needs_grad(slot) != NeedsGrad::kNo)
        problem = "it reads a tensor that requires grad and is no argument";
    };
    for_each_slot(node.args.get(), look);
    for_each_slot(node.kwargs.get(), look);
    if (std::string write = foreign_write(node, slots, made.cotangents); !write.empty()) return write;
  }
  return problem;
}

/// That a step of code that was traced ahead writes to what the code has not made: tensors before `slots`, and those it was
/// given. Empty: it does not.
std::string FunctionTracing::foreign_write(const TapeNode& node, size_t slots, const std::vector<int>& given) const {
  if (!node.mutates || PyTuple_GET_SIZE(node.args.get()) == 0) return {};
  const int target = slot_of(PyTuple_GET_ITEM(node.args.get(), 0));
  const bool own = target >= 0 && static_cast<size_t>(target) >= slots &&
                   !trace_->tape.slots()[static_cast<size_t>(target)].input &&
                   std::find(given.begin(), given.end(), target) == given.end();
  return own ? std::string() : node.name + " on a tensor that it has not made";
}

/// Calls Python code whose steps are not to happen now.
AheadRun FunctionTracing::trace_ahead(const std::function<Ref()>& call) {
  Trace& t = *trace_;
  const size_t first = t.tape.nodes().size(), effects = t.effects.size();
  const bool mutated = t.mutated;
  AheadRun run;
  run.slots = t.tape.slots().size();
  TraceContext::Ahead ahead;
  ahead.born = t.births;
  context_.ahead = &ahead;
  run.returned = call();
  context_.ahead = nullptr;
  run.problem = ahead.problem;
  const Bypass bypass(bypass_);
  if (PyErr_Occurred() != nullptr) {
    const std::string text = take_error_text();
    if (run.problem.empty()) run.problem = text.substr(0, 120);
  }
  if (run.problem.empty() && !run.returned) run.problem = "it failed";
  if (t.effects.size() != effects) writes().drop_undone_switches();
  if (run.problem.empty() && t.effects.size() != effects) run.problem = "it writes to what existed before";
  run.nodes = t.tape.cut_nodes(first);
  t.constants.cut(first);
  t.mutated = mutated;
  return run;
}

/// The steps without arithmetic on Python's numbers, which goes onto the tape at once: its operands are there before.
std::vector<TapeNode> FunctionTracing::without_numbers(std::vector<TapeNode> nodes) {
  Tape& tape = trace_->tape;
  std::vector<TapeNode> left;
  for (TapeNode& node : nodes) {
    bool numbers = number_operation(node) != nullptr && !draws_by_numpy(node);
    const auto look = [&](int slot) {
      const TapeSlot& info = tape.slots()[static_cast<size_t>(slot)];
      numbers = numbers && info.number && (info.input || tape.maker(slot) != nullptr);
    };
    if (numbers) for_each_slot(node.args.get(), look);
    if (numbers) {
      tape.add_node(std::move(node));
    } else {
      left.push_back(std::move(node));
    }
  }
  return left;
}

/// Runs the user's backward on cotangents that nobody has. Why that is no rule; empty: `made` is one.
std::string FunctionTracing::trace_backward(const FunctionCall& call, CustomBackward& made,
                                            const std::function<Ref(PyObject*)>& backward) {
  AheadRun run = trace_ahead([&]() -> Ref {
    const Ref cotangents = make_cotangents(call, made);
    if (!cotangents) return {};
    mark_born(cotangents.get());
    return backward(cotangents.get());
  });
  const Bypass bypass(bypass_);
  made.nodes = run.problem.empty() ? without_numbers(std::move(run.nodes)) : std::move(run.nodes);
  if (run.problem.empty()) run.problem = read_function_gradients(run.returned.get(), call, made);
  if (run.problem.empty()) run.problem = function_nodes_problem(call, made, run.slots);
  forget_error();
  return run.problem;
}

namespace {

/// Whether data decide more than conditions of tensors, which the graph itself looks at: then it is cut.
bool decided_between_parts(const Trace& t) {
  const TraceSymbols& symbols = t.symbols;
  for (size_t i = 0; i < symbols.symbols().size(); ++i) {
    const SymbolSource& source = symbols.sources()[i];
    if (source.slot < 0) continue;
    const IntRange& range = symbols.ranges()[i];
    const TapeNode* const maker = t.tape.maker(source.slot);
    if (source.dim != SymbolSource::kInt || range.lo != 0 || range.hi != 1 || maker == nullptr) return true;
    if (!asks_where_graphs_look(t.tape, *maker)) return true;
  }
  return false;
}

}  // namespace

PyObject* FunctionTracing::attach_backward(PyObject* callable, PyObject* const* args) {
  FunctionCall call;
  call.cls = args[0];
  call.context = args[1];
  call.args = args[2];
  auto made = std::make_shared<CustomBackward>();
  std::string problem;
  // Such a graph is cut, and a function with a backward of the user's is in one piece.
  if (decided_between_parts(*trace_)) {
    return graph_break("an autograd.Function behind a size that data decide") ? not_handled() : nullptr;
  }
  {
    const Bypass bypass(bypass_);
    problem = read_function_call(args[3], call);
    forget_error();
  }
  if (problem.empty() && call.outputs.empty()) return Py_NewRef(args[3]);
  const auto backward = [&call](PyObject* cotangents) {
    const Ref ours = package_function(PackageFunction::kFunctionBackward);
    return Ref::steal(PyObject_CallFunctionObjArgs(ours.get(), call.cls, call.context, cotangents, nullptr));
  };
  if (problem.empty()) problem = trace_backward(call, *made, backward);
  if (!problem.empty()) {
    const Ref name = attr_or_null(call.cls, "__name__");
    return graph_break(str_cat("autograd.Function ", text_of(name.get()), ": ", problem)) ? not_handled() : nullptr;
  }
  const Bypass bypass(bypass_);
  record_custom(callable, call, args[3], text_of(attr(call.cls, "__name__").get()), {std::move(made)});
  return Py_NewRef(args[3]);
}

/// Puts the step that gives results a history onto the tape.
void FunctionTracing::record_custom(PyObject* func, const FunctionCall& call, PyObject* returned, std::string name,
                                    FunctionEnd end) {
  Trace& t = *trace_;
  const auto to_slot = [&](PyObject* o) -> Ref {
    if (is_symbolic_int(o)) return make_size_ref(symbolic_expr(o), t.symbols);
    const int slot = api_.is_tensor(o) ? t.tape.find(o) : -1;
    return slot >= 0 ? make_slot_ref(slot) : Ref::borrow(o);
  };
  const Ref operands = map_structure(call.args, to_slot), results = map_structure(returned, to_slot);
  TapeNode node;
  node.func = Ref::borrow(func);
  node.args = Ref::steal(PyTuple_Pack(2, operands.get(), results.get()));
  end.cls = Ref::borrow(call.cls);
  end.context = Ref::borrow(call.context);
  node.name = std::move(name);
  node.outputs = call.outputs;
  node.sequence = true;
  node.kind = std::move(end);
  transforms().note_modes(node);
  node.location = user_location();
  for (const int output : node.outputs) histories().gets_history(output);  // they have the function's history now
  t.tape.add_node(std::move(node));
}

}  // namespace tatara::capture
