#include "capture/graph/tape_numbers.h"

#include <algorithm>
#include <optional>

#include "capture/graph/tape_arguments.h"
#include "capture/tape/node_operators.h"
#include "runtime/host/host.h"
#include "support/error.h"
#include "transforms/host_share.h"

namespace tatara::capture {

/// An int has no place in the graph but as a symbol: a tensor that nothing reads has it as its size. A float is a
/// tensor without dimensions.
void TapeNumbers::add_input(int slot) {
  ExprContext& ctx = c_.builder.ctx();
  const TapeSlot& info = c_.tape->slots()[static_cast<size_t>(slot)];
  TensorType type;
  const bool is_float = info.derived || !info.bits.empty();
  type.dtype = is_float ? DType::kFloat64 : DType::kUInt8;
  type.is_wrapped_number = is_float;
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
    const auto second_if_less = [&](size_t less, size_t than) {
      return c_.builder.where(c_.builder.binary("lt", operands[less], operands[than]), operands[1], operands[0]);
    };
    if (node.name == "number.max") return second_if_less(0, 1);  // of the first and a NaN the first, as in Python
    if (node.name == "number.min") return second_if_less(1, 0);
    if (node.name == "number.neg") return c_.builder.unary("neg", operands[0]);
    if (node.name == "number.item") return operands[0];
    throw Unsupported(node.name + " on a float that the graph computes");
  }();
  c_.refs[static_cast<size_t>(slot)] = c_.fz.fresh(c_.builder.unary("as_number", result));
}

bool TapeNumbers::take_condition(const TapeNode& node) {
  const std::optional<bool> held = condition_of(*c_.tape, node);
  if (!held) return false;
  const ValueId tensor = c_.fz.read(c_.refs[static_cast<size_t>(slot_of(PyTuple_GET_ITEM(node.args.get(), 0)))]);
  const ValueId zero = c_.builder.constant(0, c_.builder.type(tensor).dtype);
  ValueId fault = c_.builder.binary(*held ? "eq" : "ne", tensor, zero);
  if (c_.builder.type(fault).dim() > 0) fault = c_.builder.reshape(fault, {});
  Conditions& known = c_.builder.type(tensor).device.kind == DeviceKind::kCpu ? on_cpu_ : on_gpu_;
  known.last = static_cast<size_t>(&node - c_.tape->nodes().data());
  known.otherwise = known.otherwise < 0 ? fault : c_.builder.binary("logical_or", known.otherwise, fault);
  return true;
}

void TapeNumbers::check_conditions() {
  if (on_cpu_.otherwise < 0 && on_gpu_.otherwise < 0) return;
  const Graph& graph = c_.made.graph;
  const auto refuse = [this](const Conditions& conditions, const char* why) {
    UserLocation place = c_.tape->nodes()[conditions.last].location;
    place.call = static_cast<int>(conditions.last);
    throw Unsupported(why, place);
  };
  bool gpu = false;
  for (size_t v = 0; v < graph.num_values(); ++v) {
    gpu = gpu || graph.type(static_cast<ValueId>(v)).device.kind == DeviceKind::kCuda;
  }
  if (gpu && on_cpu_.otherwise >= 0 && !values_of_host(graph)[static_cast<size_t>(on_cpu_.otherwise)])
    refuse(on_cpu_, "a condition by what the CPU draws or gets from a GPU, in a graph of a GPU");
  for (size_t n = 0; n < graph.num_nodes(); ++n) {
    const std::string& name = graph.node(static_cast<NodeId>(n)).op->host_name;
    const bool users = name.find("::") != std::string::npos && calls_users_code(name);
    if (users)
      refuse(on_cpu_.otherwise >= 0 ? on_cpu_ : on_gpu_,
             "a condition beside an operator of a library, which runs once, and only if the program comes to it");
  }
  if (on_cpu_.otherwise >= 0) static_cast<void>(c_.builder.unary("decided", on_cpu_.otherwise));
  if (on_gpu_.otherwise >= 0) static_cast<void>(c_.builder.unary("decided_on_host", on_gpu_.otherwise));
}

int TapeNumbers::factor_of(const TapeNode& node) const {
  if (!node.kwargs || PyDict_GET_SIZE(node.kwargs.get()) != 1) return -1;
  const char* const name = factor_argument(node.name, node.args.get());
  PyObject* const factor = name != nullptr ? PyDict_GetItemString(node.kwargs.get(), name) : nullptr;
  const int slot = factor != nullptr ? slot_of(factor) : -1;
  return slot >= 0 && !c_.slot(slot).number && multiplies(node, slot) ? slot : -1;
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

namespace {
constexpr double kLargestHalf = 65504;
}

bool TapeNumbers::fits(const OpDef& op, const std::vector<Arg>& args) {
  bounds_.clear();
  const auto tensor_of = [&args](size_t i) {
    const auto* const tensor = i < args.size() ? std::get_if<TensorArg>(&args[i]) : nullptr;
    return tensor != nullptr ? tensor->value : kNoValue;
  };
  bool half = false, whole = false;
  for (size_t i = 0; i < args.size(); ++i) {
    if (const ValueId v = tensor_of(i); v >= 0) half = half || c_.fz.type(v).dtype == DType::kFloat16;
    const auto* const dtype = std::get_if<DType>(&args[i]);
    half = half || (dtype != nullptr && *dtype == DType::kFloat16);
    whole = whole || (dtype != nullptr && is_integral(*dtype));
  }
  if (const ValueId self = tensor_of(0); self >= 0) whole = whole || is_integral(c_.fz.type(self).dtype);
  for (size_t i = 0; i < args.size(); ++i) {
    const ValueId v = tensor_of(i);
    if (v < 0 || !c_.fz.type(v).is_wrapped_number) continue;
    const ArgSpec& spec = op.schema.args[i];
    // The host has another overload for numbers than for tensors. What does not fit integers is an error.
    if (spec.takes_value ? whole : op.kind == OpKind::kHost) return false;
    if (!spec.takes_value) continue;
    Within within = spec.within;
    if (half) within.high = std::min(within.high, kLargestHalf);
    if (half) within.low = std::max(within.low, -kLargestHalf);
    const auto found = std::find(c_.refs.begin(), c_.refs.end(), v);
    bounds_.push_back({static_cast<int>(found - c_.refs.begin()), within});
  }
  return true;
}

bool TapeNumbers::may_set(TensorRef tensor, int slot) {
  if (slot < 0 || !c_.slot(slot).number) return true;
  const DType dtype = c_.fz.type(tensor).dtype;
  if (is_integral(dtype)) return false;
  Within within;
  if (dtype == DType::kFloat16) within = {-kLargestHalf, kLargestHalf, {}};
  bounds_.push_back({slot, within});
  return true;
}

namespace {

/// The numbers of lists in lists, and how many each list has.
struct NestedNumbers {
  std::vector<PyObject*> items;
  std::vector<int64_t> sizes;
  bool fits = true;  // all lists of one depth are as long

  void add(PyObject* o, size_t depth = 0) {
    const bool list = PyList_Check(o) || PyTuple_CheckExact(o);
    if (!list) {
      fits = fits && depth == sizes.size();
      items.push_back(o);
      return;
    }
    const int64_t size = PySequence_Fast_GET_SIZE(o);
    if (depth == sizes.size() && items.empty()) sizes.push_back(size);
    fits = fits && size > 0 && depth < sizes.size() && sizes[depth] == size;
    for (Py_ssize_t i = 0; fits && i < size; ++i) add(PySequence_Fast_GET_ITEM(o, i), depth + 1);
  }
};

/// The type that torch.tensor is told; nothing: what it is told is more, or another kind of type.
std::optional<DType> type_told(const TapeNode& node, DType otherwise) {
  PyObject *key = nullptr, *value = nullptr;
  Py_ssize_t at = 0;
  DType dtype = otherwise;
  while (node.kwargs && PyDict_Next(node.kwargs.get(), &at, &key, &value) != 0) {
    const std::string name = text_of(key);
    if (value == Py_None || (name == "requires_grad" && value == Py_False)) continue;
    if (name == "device" && text_of(Ref::steal(PyObject_Str(value)).get()) == "cpu") continue;
    if (name != "dtype") return std::nullopt;
    dtype = dtype_of(value);
    if (dtype != DType::kFloat32 && dtype != DType::kFloat64) return std::nullopt;
  }
  return dtype;
}

}  // namespace

bool TapeNumbers::is_list(const TapeNode& node) const {
  if (PyTuple_GET_SIZE(node.args.get()) != 1 || !type_told(node, c_.builder.default_dtype())) return false;
  NestedNumbers numbers;
  numbers.add(PyTuple_GET_ITEM(node.args.get(), 0));
  if (!numbers.fits || (numbers.sizes.empty() && !node.kwargs)) return false;
  bool varies = false;
  for (PyObject* const item : numbers.items) {
    const int slot = slot_of(item);
    const bool number = PyFloat_CheckExact(item) || PyLong_CheckExact(item) || PyBool_Check(item);
    if (slot >= 0 ? !c_.slot(slot).number || c_.slot(slot).whole : !number) return false;
    varies = varies || slot >= 0;
  }
  return varies;
}

TapeNumbers::TensorRef TapeNumbers::list(const TapeNode& node) {
  const DType dtype = *type_told(node, c_.builder.default_dtype());
  NestedNumbers numbers;
  numbers.add(PyTuple_GET_ITEM(node.args.get(), 0));
  TensorList parts;
  for (PyObject* const item : numbers.items) {
    const int slot = slot_of(item);
    const ValueId part = slot >= 0 ? c_.builder.cast(c_.fz.read(c_.refs[static_cast<size_t>(slot)]), dtype)
                                   : c_.builder.constant(PyFloat_AsDouble(item), dtype);
    if (numbers.sizes.empty()) return c_.fz.fresh(part);
    parts.values.push_back(c_.builder.unsqueeze(part, 0));
  }
  const ValueId flat = c_.builder.op("cat", {std::move(parts), Scalar(int64_t{0})});
  if (numbers.sizes.size() == 1) return c_.fz.fresh(flat);
  std::vector<Expr> sizes;
  for (const int64_t size : numbers.sizes) sizes.push_back(c_.builder.ctx().constant(size));
  return c_.fz.fresh(c_.builder.reshape(flat, sizes));
}

}  // namespace tatara::capture
