#include "capture/graph/tape_conversion.h"

#include "transforms/passes.h"

#include "capture/graph/tape_arguments.h"

namespace tatara::capture {
namespace {

DType default_dtype(TorchApi& api) {
  if (!api.state.get_default_dtype) return DType::kFloat32;  // a program without torch, whose tape is empty
  const Ref dtype = Ref::steal(PyObject_CallNoArgs(api.state.get_default_dtype.get()));
  return dtype_of(dtype.get());
}

}  // namespace

TapeConversion::TapeConversion(const Tape& of, TorchApi& host, std::shared_ptr<ExprContext> ctx)
    : api(host),
      tape(&of),
      made{Graph(std::move(ctx)), {}, {}, {}, {}, {}, false, {}, {}, {}, {}},
      builder(made.graph, default_dtype(host)),
      fz(builder),
      refs(of.slots().size(), -1) {}

std::vector<int64_t> TapeConversion::versions() const {
  std::vector<int64_t> result;
  for (const TensorRef ref : refs) result.push_back(ref < 0 ? -1 : fz.version(ref));
  return result;
}

std::vector<Expr> TapeConversion::exprs(PyObject* tuple) {
  std::vector<Expr> values;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    values.push_back(builder.ctx().constant(int_value(PyTuple_GET_ITEM(tuple, i))));
  }
  return values;
}

std::vector<Expr> TapeConversion::sizes_of(const std::vector<Expr>& symbolic, PyObject* tuple) {
  if (symbolic.empty()) return exprs(tuple);
  std::vector<Expr> values;
  for (const Expr e : symbolic) values.push_back(size_in(builder.ctx(), e));
  return values;
}

TapeConversion::TensorRef TapeConversion::constant(Ref tensor) {
  TensorType type;
  type.dtype = dtype_of(attr(tensor.get(), "dtype").get());
  type.device = device_of(attr(tensor.get(), "device").get());
  type.sizes = exprs(attr(tensor.get(), "shape").get());
  type.strides = exprs(Ref::steal(PyObject_CallMethod(tensor.get(), "stride", nullptr)).get());
  made.constants.push_back(std::move(tensor));
  made.inputs.push_back(-static_cast<int>(made.constants.size()));
  return fz.fresh(made.graph.add_input(std::move(type)));
}

void TapeConversion::place_constants() {
  std::vector<bool> constant;
  for (const int input : made.inputs) constant.push_back(input < 0);
  for (const size_t input : tatara::place_constants(made.graph, constant)) {
    Ref& tensor = made.constants[static_cast<size_t>(-1 - made.inputs[input])];
    const std::string device = made.graph.type(made.graph.inputs()[input]).device.str();
    tensor = Ref::steal(PyObject_CallMethod(tensor.get(), "to", "s", device.c_str()));
    if (tensor) continue;
    forget_error();
    throw Unsupported("a constant that cannot be copied to " + device);
  }
}

TensorType TapeConversion::slot_type(int slot) {
  const TapeSlot& info = this->slot(slot);
  const SlotLayout& as = layout(slot);
  TensorType type;
  type.dtype = dtype_of(info.dtype.get());
  type.device = device_of(info.device.get());
  type.sizes = sizes_of(as.symbolic_sizes, as.sizes.get());
  type.strides = sizes_of(as.symbolic_strides, as.strides.get());
  return type;
}

}  // namespace tatara::capture
