// How the gradients that the engine computes lie in memory.
#include <algorithm>

#include "capture/trace/gradient_tracing.h"
#include "capture/trace/tracer_internal.h"

namespace tatara::capture {
namespace {

std::vector<int64_t> packed_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<int64_t>(sizes[i], 1);
  return strides;
}

bool fills_memory(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1) dims.emplace_back(strides[i], sizes[i]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t next = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != next) return false;
    next *= size;
  }
  return true;
}

/// Strides that the engine gives the gradient of a leaf: the leaf's own where it fills its memory. One that lies so in memory is kept
/// as it was `made`, where dimensions of one element may have any strides but 0.
std::vector<int64_t> gradient_strides(const TensorMeta& leaf, const std::vector<int64_t>& made) {
  const std::vector<int64_t>& sizes = leaf.sizes;
  const bool filled = fills_memory(sizes, leaf.strides);
  const std::vector<int64_t> wanted = filled ? leaf.strides : packed_strides(sizes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1 ? made[i] != wanted[i] : filled && made[i] == 0) return wanted;
  }
  return made;
}

/// Strides of a gradient by a tensor whose sizes vary, which are `now` in this call; empty: not known for others.
std::vector<Expr> gradient_layout(const TapeSlot& variable, const std::vector<int64_t>& now) {
  ExprContext& ctx = variable.symbolic_sizes.front().context();
  // Of an expanded tensor: what is not repeated fills its memory.
  std::vector<Expr> packed = variable.symbolic_sizes, expanded;
  for (size_t i = 0; i < packed.size() && i < now.size(); ++i) {
    if (now[i] == 0) packed[i] = ctx.constant(1);
  }
  expanded = contiguous_strides(ctx, packed);
  for (size_t i = 0; i < expanded.size() && i < now.size(); ++i) {
    if (now[i] == 0) expanded[i] = ctx.constant(0);
  }
  for (const std::vector<Expr>& strides :
       {contiguous_strides(ctx, variable.symbolic_sizes), variable.symbolic_strides, expanded}) {
    std::vector<Expr> found = strides;
    bool same = strides.size() == now.size();
    for (size_t i = 0; same && i < now.size(); ++i) {
      if (ctx.evaluate_hint(strides[i]) == now[i]) continue;
      // That of a dimension of one element is free.
      same = now[i] == 1 && variable.symbolic_sizes[i] == ctx.constant(1);
      found[i] = ctx.constant(1);
    }
    if (same) return found;
  }
  return {};
}

}  // namespace

bool knows_layout(const TapeSlot& variable, const std::vector<int64_t>& strides) {
  return variable.symbolic_sizes.empty() || !gradient_layout(variable, strides).empty();
}

int GradientTracing::add_gradient(const TapeSlot& variable, const std::vector<int64_t>& strides, Ref& made) {
  Tape& tape = trace_->tape;
  const Ref stride = int_tuple(strides);
  made = api_.empty_meta(variable.sizes.get(), stride.get(), variable.dtype.get());
  if (!made) return -1;
  const int slot = tape.add_placeholder(made.get(), variable.device);
  if (!variable.symbolic_sizes.empty()) {
    tape.set_layout(slot, variable.symbolic_sizes, gradient_layout(variable, strides));
  }
  return slot;
}

/// The strides of a variable's gradient.
std::vector<int64_t> GradientTracing::gradient_place(const EngineCall& call, size_t variable,
                                                     const GradientLayout& layout) const {
  TensorMeta meta;
  if (!call.accumulate) return layout.strides;
  if (variable >= call.leaves) return packed_strides(layout.sizes);
  PyObject* const leaf = call.tensors[variable];
  if (!api_.read_meta(leaf, meta)) {  // one that the trace makes
    const ErrorAside aside;
    const Ref strides = Ref::steal(PyObject_CallMethod(leaf, "stride", nullptr));
    for (Py_ssize_t d = 0; strides && d < PyTuple_GET_SIZE(strides.get()); ++d) {
      meta.strides.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(strides.get(), d)));
    }
    meta.sizes = layout.sizes;
    forget_error();
  }
  return meta.strides.size() == layout.strides.size() ? gradient_strides(meta, layout.strides) : layout.strides;
}

}  // namespace tatara::capture
