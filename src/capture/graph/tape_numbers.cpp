#include "capture/graph/tape_numbers.h"

#include <array>
#include <optional>

#include "capture/graph/tape_arguments.h"
#include "capture/tape/node_operators.h"
#include "support/error.h"

namespace tatara::capture {

/// An int has no place in the graph but as a symbol: a tensor that nothing reads has it as its size. A float is a
/// tensor without dimensions.
void TapeNumbers::add_input(int slot) {
  ExprContext& ctx = c_.builder.ctx();
  const TapeSlot& info = c_.tape->slots()[static_cast<size_t>(slot)];
  TensorType type;
  const bool is_float = info.derived || !info.bits.empty();
  type.dtype = is_float ? DType::kFloat64 : DType::kUInt8;
  if (!is_float) {
    type.sizes = {size_in(ctx, info.symbolic_sizes[0])};
    type.strides = {ctx.constant(1)};
  }
  const ValueId value = c_.made.graph.add_input(std::move(type));
  if (is_float) c_.refs[static_cast<size_t>(slot)] = c_.fz.fresh(value);
  c_.made.inputs.push_back(slot);
}

bool TapeNumbers::on_host(int slot) const {
  const TapeSlot& info = c_.tape->slots()[static_cast<size_t>(slot)];
  return info.number && (info.input || host_.contains(slot));
}

void TapeNumbers::convert(const TapeNode& node) {
  if (number_operation(node)->guarded) return;
  if (draws_by_numpy(node)) throw Unsupported("a random number of NumPy's");
  const int slot = node.outputs[0];
  bool host = true;
  for_each_slot(node.args.get(), [&](int operand) { host = host && on_host(operand); });
  if (host) {
    host_.insert(slot);
    c_.made.host_nodes.push_back(static_cast<size_t>(&node - c_.tape->nodes().data()));
    if (!c_.tape->slots()[static_cast<size_t>(slot)].whole) add_input(slot);  // tensors get floats alone
    return;
  }
  std::vector<ValueId> operands;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(node.args.get()); ++i) {
    PyObject* operand = PyTuple_GET_ITEM(node.args.get(), i);
    const int from = slot_of(operand);
    if (is_size_ref(operand)) throw Unsupported("an int that varies and a float that the graph computes");
    operands.push_back(from >= 0 ? c_.builder.cast(c_.fz.read(c_.refs[static_cast<size_t>(from)]), DType::kFloat64)
                                 : c_.builder.constant(PyFloat_AsDouble(operand), DType::kFloat64));
  }
  const auto of_two = [&](const char* op) { return c_.builder.binary(op, operands[0], operands[1]); };
  const auto result = [&]() -> ValueId {
    if (node.name == "number.add") return of_two("add");
    if (node.name == "number.sub") return of_two("sub");
    if (node.name == "number.mul") return of_two("mul");
    if (node.name == "number.truediv") return of_two("div");
    if (node.name == "number.pow") return of_two("pow");
    if (node.name == "number.neg") return c_.builder.unary("neg", operands[0]);
    if (node.name == "number.item") return operands[0];
    throw Unsupported(node.name + " on a float that the graph computes");
  }();
  c_.refs[static_cast<size_t>(slot)] = c_.fz.fresh(result);
}

int TapeNumbers::factor_of(const TapeNode& node) const {
  if (!node.kwargs || PyDict_GET_SIZE(node.kwargs.get()) != 1) return -1;
  const char* const name = factor_argument(node.name, node.args.get());
  PyObject* const factor = name != nullptr ? PyDict_GetItemString(node.kwargs.get(), name) : nullptr;
  const int slot = factor != nullptr ? slot_of(factor) : -1;
  return slot >= 0 && (c_.slot(slot).number || multiplies(node, slot)) ? slot : -1;
}

/// Whether an operator of both computes in the type of the first, to which it casts the other exactly.
static bool widens_to(const TensorType& other, const TensorType& first) {
  return first.dim() > 0 && is_floating(other.dtype) && promote_types(other.dtype, first.dtype) == first.dtype;
}

bool TapeNumbers::multiplies(const TapeNode& node, int factor) const {
  const TensorType& by = c_.fz.type(c_.ref(factor));
  const auto is_real = [](const TensorType& type) {
    return type.dtype == DType::kFloat32 || type.dtype == DType::kFloat64;
  };
  if (node.level != 0 || by.dim() != 0 || !is_real(by)) return false;
  const TensorType* first = nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(node.args.get()); ++i) {
    const int slot = slot_of(PyTuple_GET_ITEM(node.args.get(), i));
    if (slot < 0 || c_.slot(slot).number) return false;
    const TensorType& type = c_.fz.type(c_.ref(slot));
    if (first == nullptr) first = &type;
    if (type.device != by.device || (type.dtype != first->dtype && !widens_to(type, *first))) return false;
  }
  return first != nullptr && is_real(*first);
}

std::vector<TapeNumbers::TensorRef> TapeNumbers::scaled(const TapeNode& node, int factor) {
  std::vector<TensorRef> refs;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(node.args.get()); ++i) {
    refs.push_back(c_.refs[static_cast<size_t>(slot_of(PyTuple_GET_ITEM(node.args.get(), i)))]);
  }
  const ValueId by = c_.builder.cast(c_.fz.read(c_.refs[static_cast<size_t>(factor)]), c_.fz.type(refs[0]).dtype);
  const auto operand = [&](size_t i) { return c_.builder.cast(c_.fz.read(refs[i]), c_.fz.type(refs[0]).dtype); };
  ValueId term = c_.builder.binary("mul", by, operand(1));
  if (refs.size() == 3) term = c_.builder.binary(node.name.rfind("addcdiv", 0) == 0 ? "div" : "mul", term, operand(2));
  const ValueId sum = c_.builder.binary(node.name.rfind("sub", 0) == 0 ? "sub" : "add", c_.fz.read(refs[0]), term);
  const TensorRef result = c_.fz.fresh(sum);
  if (node.name.back() != '_') return {result};
  c_.fz.apply_inplace(OpRegistry::global().get("copy"), {TensorArg{refs[0]}, TensorArg{result}, Scalar(false)});
  return {refs[0]};
}

std::vector<TapeNumbers::TensorRef> TapeNumbers::cast(const TapeNode& node) {
  const auto slot = [&](Py_ssize_t i) { return slot_of(PyTuple_GET_ITEM(node.args.get(), i)); };
  if (PyTuple_GET_SIZE(node.args.get()) == 3 && node.name.rfind("lerp", 0) == 0 && slot(2) >= 0 &&
      c_.tape->slots()[static_cast<size_t>(slot(2))].number) {
    // The weight, which eager's kernel has in the tensors' type.
    std::vector<TensorRef> refs = c_.refs;
    TensorRef& weight = refs[static_cast<size_t>(slot(2))];
    weight = c_.fz.fresh(c_.builder.cast(c_.fz.read(weight), c_.fz.type(c_.refs[static_cast<size_t>(slot(0))]).dtype));
    return refs;
  }
  if (PyTuple_GET_SIZE(node.args.get()) != 2) return {};
  const auto is_number = [&](int s) {
    const TapeSlot* info = s >= 0 ? &c_.tape->slots()[static_cast<size_t>(s)] : nullptr;
    return info != nullptr && info->number && (info->derived || !info->bits.empty());
  };
  for (const Py_ssize_t i : {0, 1}) {
    const int number = slot(i), other = slot(1 - i);
    if (!is_number(number) || other < 0 || is_number(other)) continue;
    const TensorType& type = c_.fz.type(c_.refs[static_cast<size_t>(other)]);
    if (type.dim() != 0) continue;
    std::vector<TensorRef> refs = c_.refs;
    TensorRef& mine = refs[static_cast<size_t>(number)];
    mine = c_.fz.fresh(c_.builder.cast(c_.fz.read(mine), type.dtype));
    return refs;
  }
  return {};
}

}  // namespace tatara::capture
