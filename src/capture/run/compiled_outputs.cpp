// The results of a compiled graph as tensors of the host: which are views, of what, and with which history.
#include <algorithm>
#include <optional>

#include "capture/host/torch_native.h"
#include "capture/run/compiled_frame.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

/// The memory of a tensor as elements of another type, one after the other. `offset`, which counts the tensor's own elements from
/// the start of its storage, counts these then.
Ref memory_as(PyObject* tensor, DType from, DType to, int64_t& offset) {
  const Ref type = attr(TorchApi::get()->torch.get(), torch_abi::dtype_attribute(to));
  const Ref storage = Ref::steal(PyObject_CallMethod(tensor, "untyped_storage", nullptr));
  const Ref bytes = storage ? Ref::steal(PyObject_CallMethod(storage.get(), "nbytes", nullptr)) : Ref();
  if (!type || !bytes) return {};
  // The start of the tensor is at an element of either type, the end of the storage need not be.
  const int64_t size = std::max(dtype_size(from), dtype_size(to));
  const int64_t whole = PyLong_AsLongLong(bytes.get()) / size * size / dtype_size(from);
  const GradientsSet off(*TorchApi::get(), false);
  const Ref row =
      Ref::steal(PyObject_CallMethod(tensor, "as_strided", "(L)(L)L", static_cast<long long>(whole), 1LL, 0LL));
  offset = offset * dtype_size(from) / dtype_size(to);
  return row ? Ref::steal(PyObject_CallMethod(row.get(), "view", "O", type.get())) : Ref();
}

/// A view that takes no gradient: those of training graphs are made by the host itself, on top of this. `constant`: detach()
/// stands between; else it says, as eager's views do, that it requires grad where its base does.
Ref as_strided(PyObject* base, const TensorLayout& layout, int64_t offset, const ViewOrigin& origin, bool constant) {
  const Ref detached = constant ? apart_as(origin, base) : Ref();
  if (constant && !detached) return {};
  std::optional<GradientsSet> off;
  if (!constant && attribute_is_true(base, "requires_grad")) off.emplace(*TorchApi::get(), false);
  const Ref size = int_tuple(layout.sizes), stride = int_tuple(layout.strides);
  return Ref::steal(PyObject_CallMethod(constant ? detached.get() : base, "as_strided", "OOL", size.get(), stride.get(),
                                        static_cast<long long>(offset)));
}

}  // namespace

/// In eager what detach() gives is no view of anything.
Ref CompiledRunner::without_base(size_t i, Ref view) const {
  if (!view || !(outputs_[i].origin.detached || outputs_[i].alone)) return view;
  return apart_as(outputs_[i].origin, view.get());
}

/// An output that is not simply a buffer of its own.
Ref CompiledRunner::output(size_t i, const std::vector<Ref>& env, Frame& frame) const {
  const Plan& plan = executable_->plan();
  const PlanBuffer& buffer = plan.buffers[static_cast<size_t>(plan.outputs[i].ref.buffer)];
  const TensorLayout& layout = frame.layouts.outputs[i];
  switch (buffer.home) {
    case BufferHome::kOutput: {
      // Memory that another result is the whole of: in eager both may be views of a tensor that is no result.
      const auto whole = std::find(frame.whole.begin(), frame.whole.end(), buffer.index);
      const Output& mine = outputs_[i];
      const bool hidden = !mine.of_stage && whole != frame.whole.end() &&
                          !mine.origin.is_view_of(outputs_[static_cast<size_t>(whole - frame.whole.begin())].slot);
      Ref base = frame.buffers[static_cast<size_t>(buffer.index)];
      if (int64_t start = 0; buffer.dtype != plan.outputs[i].ref.dtype)
        base = memory_as(base.get(), buffer.dtype, plan.outputs[i].ref.dtype, start);
      if (!base) return {};
      Ref view = without_base(i, as_strided(base.get(), layout, layout.offset, mine.origin, hidden));
      if (!hidden || !mine.origin.bases.empty() || !view) return view;
      return apart_as(mine.origin, view.get());  // no view in eager
    }
    case BufferHome::kInput: {
      Ref base = Ref::borrow(input(env, static_cast<size_t>(buffer.index)));
      const Ref start = Ref::steal(PyObject_CallMethod(base.get(), "storage_offset", nullptr));
      if (!start) return {};
      int64_t offset = PyLong_AsLongLong(start.get());
      const Output& mine = outputs_[i];
      const bool constant = mine.of_stage ? attribute_is_true(base.get(), "requires_grad")
                                          : mine.origin.constant && !mine.origin.detached;
      if (buffer.dtype != plan.outputs[i].ref.dtype)
        base = memory_as(base.get(), buffer.dtype, plan.outputs[i].ref.dtype, offset);
      if (!base) return {};
      return without_base(i, as_strided(base.get(), layout, layout.offset + offset, mine.origin, constant));
    }
    case BufferHome::kHost: {
      const torch_abi::Api* abi = torch_abi::api();
      const auto made = static_cast<torch_abi::TensorHandle>(frame.host_outputs[i].get());
      // In eager tangents are lazy, too, where their primals are.
      if (outputs_[i].in_levels && torch_abi::is_lazy(*abi, made)) {
        throw InternalError("a lazily conjugated host result of a transform");
      }
      torch_abi::TensorHandle handle = nullptr;
      int64_t rank = 0, *sizes = nullptr, *strides = nullptr;
      if (abi->aoti_torch_get_dim(made, &rank) != 0 || abi->aoti_torch_get_sizes(made, &sizes) != 0 ||
          abi->aoti_torch_get_strides(made, &strides) != 0 || abi->aoti_torch_new_tensor_handle(made, &handle) != 0) {
        throw InternalError("a host result cannot be kept");
      }
      Ref result = TorchNative::get().wrap(handle);
      if (!result || frame.host_layout[i]) return result;
      if (layout.offset != 0 || !layout.fits({nullptr, sizes, strides, static_cast<int32_t>(rank)})) {
        return without_base(i, as_strided(result.get(), layout, layout.offset, outputs_[i].origin, false));
      }
      return result;
    }
    case BufferHome::kArena:
    case BufferHome::kConstant: break;
  }
  throw InternalError("an output in the plan's own memory");
}

}  // namespace tatara::capture
