// Levels of vmap while a trace is open: what becomes a batch, and what depends on one.
#include <algorithm>
#include <string_view>

#include "capture/host/known_calls.h"
#include "capture/host/package.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

/// Operators that exchange two dimensions.
bool turns_dims(std::string_view name) { return known_torch(name).is(kTurnsDims); }

}  // namespace

bool TransformTracing::is_made_from(int slot, int source) const {
  const Tape& tape = trace_->tape;
  std::vector<bool> made(tape.slots().size(), false);
  made[static_cast<size_t>(source)] = true;
  for (const TapeNode& node : tape.nodes()) {
    bool any = false;
    const auto look = [&](int operand) { any = any || made[static_cast<size_t>(operand)]; };
    for_each_slot(node.args.get(), look);
    for_each_slot(node.kwargs.get(), look);
    for (const int output : node.outputs) {
      if (any && output >= 0) made[static_cast<size_t>(output)] = true;
    }
  }
  return made[static_cast<size_t>(slot)];
}

bool TransformTracing::is_batched(int slot, int level) const {
  const Tape& tape = trace_->tape;
  std::vector<bool> batched(tape.slots().size(), false);
  for (const TapeNode& node : tape.nodes()) {
    if (step_of(node) == FuncStep::kBatchIn && node.level == level) {
      batched[static_cast<size_t>(node.outputs[0])] = true;
      continue;
    }
    bool any = false;
    const auto look = [&](int operand) { any = any || batched[static_cast<size_t>(operand)]; };
    for_each_slot(node.args.get(), look);
    for_each_slot(node.kwargs.get(), look);
    if (!any) continue;
    for (const int output : node.outputs) {
      if (output >= 0) batched[static_cast<size_t>(output)] = true;
    }
  }
  return batched[static_cast<size_t>(slot)];
}

int TransformTracing::whole_batch(int slot, int dim) const {
  const std::vector<TapeNode>& nodes = trace_->tape.nodes();
  for (size_t n = nodes.size(); n-- > 0;) {
    const TapeNode& node = nodes[n];
    if (node.outputs.size() != 1 || node.outputs[0] != slot) continue;
    if (step_of(node) == FuncStep::kNone && turns_dims(node.name)) {
      // Turning the dimensions of one number round does nothing at all to the batch.
      int operand = -1;
      for_each_slot(node.args.get(), [&](int each) { operand = each; });
      const bool number = PyTuple_GET_SIZE(trace_->tape.slots()[static_cast<size_t>(slot)].sizes.get()) == 0;
      if (number && operand >= 0 && operand != slot) slot = operand;
      continue;
    }
    if (step_of(node) != FuncStep::kBatchIn) continue;
    int whole = -1;
    for_each_slot(PyTuple_GET_ITEM(node.args.get(), 0), [&](int operand) { whole = operand; });
    return transform_step(node)->dim == dim ? whole : -1;
  }
  return -1;
}

int TransformTracing::given_before(FuncStep step, int slot, int dim) const {
  const std::vector<TapeNode>& nodes = trace_->tape.nodes();
  for (size_t n = nodes.size(); n-- > 0;) {
    const TapeNode& node = nodes[n];
    // Only results are between: nothing was written.
    if (step_of(node) == FuncStep::kNone ? node.name != "expand" : step_of(node) == FuncStep::kEnter) return -1;
    if (step_of(node) != step || node.level != innermost() || transform_step(node)->dim != dim) continue;
    if (slot_of(PyTuple_GET_ITEM(node.args.get(), 0)) != slot) continue;
    if (step != FuncStep::kUnpackDual || node.outputs.size() > 1) return node.outputs.back();
  }
  return -1;
}

PyObject* TransformTracing::batch_in(PyObject* callable, PyObject* tensor, int dim, int number) {
  Trace& t = *trace_;
  std::string problem;
  const int level = open_level(number);
  const int slot = transform_operand(tensor, problem);
  if (level == 0 || level != innermost()) problem = "a batch for a level that is not the innermost one";
  if (!problem.empty()) return transform_break(problem);
  const TapeSlot info = t.tape.slots()[static_cast<size_t>(slot)];
  const auto rank = static_cast<int>(PyTuple_GET_SIZE(info.sizes.get()));
  if (dim < 0) dim += rank;
  if (dim < 0 || dim >= rank) return transform_break("a batch along a dimension that is not there");
  int made = -1;
  {
    const Bypass bypass(bypass_);
    const auto without = [dim](PyObject* tuple) {
      const Ref list = Ref::steal(PySequence_List(tuple));
      PyList_SetSlice(list.get(), dim, dim + 1, nullptr);
      return Ref::steal(PyList_AsTuple(list.get()));
    };
    const Ref sizes = without(info.sizes.get()), strides = without(info.strides.get());
    const Ref placeholder = api_.empty_meta(sizes.get(), strides.get(), info.dtype.get());
    if (!placeholder) return nullptr;
    made = t.tape.add_placeholder(placeholder.get(), info.device);
    if (!info.symbolic_sizes.empty()) {
      std::vector<Expr> a = info.symbolic_sizes, b = info.symbolic_strides;
      a.erase(a.begin() + dim);
      b.erase(b.begin() + dim);
      t.tape.set_layout(made, std::move(a), std::move(b));
    }
    t.tape.set_level(made, level);
  }
  const Ref ref = make_slot_ref(slot);
  record_step({FuncStep::kBatchIn, number, dim}, "batch_in", host_call(callable),
              Ref::steal(PyTuple_Pack(1, ref.get())), {made});
  return Py_NewRef(t.tape.slots()[static_cast<size_t>(made)].object.get());
}

/// A result that is the same for every example: eager expands it.
PyObject* TransformTracing::repeated(PyObject* tensor, PyObject* size, int rank) {
  static PyObject* const expand = attr(reinterpret_cast<PyObject*>(api_.base_type), "expand").release();
  const Ref args = Ref::steal(PyTuple_New(rank + 1));
  PyTuple_SET_ITEM(args.get(), 0, Py_NewRef(tensor));
  PyTuple_SET_ITEM(args.get(), 1, Py_NewRef(size));
  for (int i = 2; i <= rank; ++i) PyTuple_SET_ITEM(args.get(), i, PyLong_FromLong(-1));
  Ref made = Ref::steal(torch().torch_function(expand, args.get(), nullptr));
  const int slot = made && tracing() ? trace_->tape.find(made.get()) : -1;
  if (slot >= 0) {
    trace_->tape.set_level(slot, own_.open_levels.size() > 1 ? own_.open_levels[own_.open_levels.size() - 2] : 0);
  }
  return made.release();
}

PyObject* TransformTracing::batch_out(PyObject* callable, PyObject* tensor, int number, PyObject* size, int dim) {
  Trace& t = *trace_;
  std::string problem;
  const int level = open_level(number);
  const int slot = transform_operand(tensor, problem);
  if (level == 0 || level != innermost()) problem = "a batch from a level that is not the innermost one";
  if (size == nullptr || !(PyLong_Check(size) || is_symbolic_int(size))) problem = "a batch of unknown size";
  if (!problem.empty()) return transform_break(problem);
  const TapeSlot info = t.tape.slots()[static_cast<size_t>(slot)];
  const auto rank = static_cast<int>(PyTuple_GET_SIZE(info.sizes.get())) + 1;
  const int place = dim < 0 ? dim + rank : dim;
  if (place < 0 || place >= rank) return transform_break("a batch along a dimension that is not there");
  if (!is_batched(slot, level)) {
    if (place != 0)
      return transform_break("a result of vmap that is the same for every example, along another dimension");
    return repeated(tensor, size, rank);
  }
  if (const int whole = whole_batch(slot, place); whole >= 0) {
    // Nothing was done to the examples: eager gives back the tensor that they came from.
    return Py_NewRef(t.tape.slots()[static_cast<size_t>(whole)].object.get());
  }
  int made = given_before(FuncStep::kBatchOut, slot, place);
  if (made >= 0) return Py_NewRef(t.tape.slots()[static_cast<size_t>(made)].object.get());
  {
    const Bypass bypass(bypass_);
    ExprContext& ctx = t.symbols.ctx();
    std::vector<Expr> sizes = info.symbolic_sizes;
    for (Py_ssize_t i = 0; sizes.size() + 1 < static_cast<size_t>(rank); ++i) {
      sizes.push_back(ctx.constant(PyLong_AsLongLong(PyTuple_GET_ITEM(info.sizes.get(), i))));
    }
    const Expr count = is_symbolic_int(size) ? symbolic_expr(size) : ctx.constant(PyLong_AsLongLong(size));
    sizes.insert(sizes.begin(), count);
    std::vector<Expr> strides = contiguous_strides(ctx, sizes);
    for (std::vector<Expr>* list : {&sizes, &strides}) {
      const Expr first = list->front();
      list->erase(list->begin());
      list->insert(list->begin() + place, first);
    }
    std::vector<int64_t> now, steps;
    for (const Expr e : sizes) now.push_back(ctx.evaluate_hint(e).value());
    for (const Expr e : strides) steps.push_back(ctx.evaluate_hint(e).value());
    const Ref shape = int_tuple(now), stride = int_tuple(steps);
    const Ref placeholder = api_.empty_meta(shape.get(), stride.get(), info.dtype.get());
    if (!placeholder) return nullptr;
    made = t.tape.add_placeholder(placeholder.get(), info.device);
    t.tape.set_layout(made, std::move(sizes), std::move(strides));
    t.tape.set_level(made, own_.open_levels.size() > 1 ? own_.open_levels[own_.open_levels.size() - 2] : 0);
  }
  const Ref ref = make_slot_ref(slot),
            examples = is_symbolic_int(size) ? make_size_ref(symbolic_expr(size), t.symbols) : Ref::borrow(size);
  record_step({FuncStep::kBatchOut, number, place}, "batch_out", host_call(callable),
              Ref::steal(PyTuple_Pack(2, ref.get(), examples.get())), {made});
  return Py_NewRef(t.tape.slots()[static_cast<size_t>(made)].object.get());
}

}  // namespace tatara::capture
