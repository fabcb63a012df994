// Tensors of unspecified contents, of numbers, and evenly spaced ones.
#include "ops/core/pointwise_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Op = ScalarOp;

constexpr const char* kOptionText =
    ", *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool "
    "requires_grad=False";

std::string schema_with_options(const std::string& head, const char* more = "") {
  return "(" + head + kOptionText + more + ") -> Tensor";
}

/// The options dtype, layout, device, pin_memory, requires_grad from argument `first` on; refuses what is not plain.
Device plain_device(MetaContext& m, size_t first, Device fallback = {}) {
  if (!m.is_none(first + 1) && m.string(first + 1) != "strided") throw Unsupported("a sparse result runs in eager");
  if (!m.is_none(first + 3) && m.boolean(first + 3)) throw Unsupported("pinned memory runs in eager");
  if (!m.is_none(first + 4) && m.boolean(first + 4)) throw Unsupported("requires_grad runs in eager");
  return m.is_none(first + 2) ? fallback : std::get<Device>(m.arg(first + 2));
}

Choice full(std::vector<Expr> sizes, const Arg& value, DType dtype, Device device) {
  return {"full", {SymInts{std::move(sizes)}, value, dtype, NoneArg{}, device, NoneArg{}, bool_arg(false)}};
}

Choice full_strided(std::vector<Expr> sizes, std::vector<Expr> strides, DType dtype, Device device) {
  return {"full_strided", {SymInts{std::move(sizes)}, SymInts{std::move(strides)}, Scalar(int64_t{0}), dtype, device}};
}

std::vector<TensorType> full_strided_meta(MetaContext& m) {
  TensorType type;
  type.sizes = m.ints(0);
  type.strides = m.ints(1);
  if (type.sizes.size() != type.strides.size()) throw InvalidArgument("mismatch in length of strides and shape");
  type.dtype = *m.dtype(3);
  type.device = std::get<Device>(m.arg(4));
  if (!is_dense(m.ctx(), type)) throw Unsupported("strides with gaps or overlaps");
  return {type};
}

/// What empty tensors hold is not specified; the zeros cost a fill only where someone reads them.
Choice empty(MetaContext& m, std::vector<Expr> sizes, DType dtype, Device device, size_t format) {
  if (format < m.num_args() && !m.is_none(format)) {
    const std::string name = m.string(format);
    if (name == "channels_last" || name == "channels_last_3d") {
      std::vector<Expr> strides = layout_strides(m.ctx(), sizes, Layout::kChannelsLast);
      return full_strided(std::move(sizes), std::move(strides), dtype, device);
    }
  }
  return full(std::move(sizes), int64_t{0}, dtype, device);
}

Choice empty_like(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  const Device device = plain_device(m, 1, self.device);
  const DType dtype = m.dtype(1).value_or(self.dtype);
  const std::string format = m.is_none(6) ? "preserve_format" : m.string(6);
  if (format == "preserve_format") {
    const TensorType* operands[] = {&self};
    std::vector<Expr> strides = is_dense(m.ctx(), self) ? self.strides : m.iterator_strides(self.sizes, operands);
    return full_strided(self.sizes, std::move(strides), dtype, device);
  }
  return empty(m, self.sizes, dtype, device, 6);
}

DType number_dtype(MetaContext& m, const Scalar& value) {
  if (std::holds_alternative<bool>(value)) return DType::kBool;
  if (std::holds_alternative<double>(value)) return m.default_dtype();
  if (std::holds_alternative<std::complex<double>>(value)) return complex_dtype(m.default_dtype());
  return DType::kInt64;
}

/// Ends that are numbers or tensors without dimensions.
std::vector<TensorType> linspace_meta(MetaContext& m) {
  const size_t options = m.op().name == "logspace" ? 4 : 3;
  const Device device = plain_device(m, options);
  const int64_t steps = m.integer(2);
  if (steps < 0) throw InvalidArgument("number of steps must be non-negative");
  const DType dtype = m.dtype(options).value_or(m.default_dtype());
  for (size_t i = 0; i < 2; ++i) {
    if (m.is_tensor(i) && m.tensor(i).dim() != 0) {
      throw InvalidArgument("linspace only supports 0-dimensional start and end tensors");
    }
    const bool complex =
        m.is_tensor(i) ? is_complex(m.tensor(i).dtype) : std::holds_alternative<std::complex<double>>(m.scalar(i));
    if (complex) throw Unsupported("a complex linspace runs in eager");
  }
  if (!is_floating(dtype)) throw Unsupported("linspace of integers runs in eager");
  return {contiguous_type(m.ctx(), dtype, device, {m.ctx().constant(steps)})};
}

/// start + step * i from the nearer end, as eager; with a base (logspace) the base to that power.
LowerFn lower_linspace(bool power) {
  return [power](LowerContext& c) {
    const Args args(c);
    const DType t = compute_dtype(c.result().dtype);
    const int64_t steps = args.integer(2);
    const double base = power ? args.number(3) : 0;
    c.pointwise(0, [=, &c](LoopBuilder& b, std::span<const Expr> at) {
      const ScalarId start = operand_at(c, b, 0, t, {});
      const ScalarId end = operand_at(c, b, 1, t, {});
      const auto value = [&](ScalarId x) { return power ? b.apply2(Op::kPow, b.constant(base, t), x) : x; };
      if (steps == 1) return value(start);
      const ScalarId gaps = b.constant(static_cast<double>(steps - 1), t);
      const ScalarId step = b.apply2(Op::kDiv, b.apply2(Op::kSub, end, start), gaps);
      const ScalarId index = b.index_value(at[0], t);
      const ScalarId low = b.apply2(Op::kAdd, start, b.apply2(Op::kMul, step, index));
      const ScalarId high = b.apply2(Op::kSub, end, b.apply2(Op::kMul, step, b.apply2(Op::kSub, gaps, index)));
      const ScalarId place = b.index_value(at[0], DType::kInt64);
      return value(b.select(b.compare(Op::kLt, place, b.constant_int(steps / 2, DType::kInt64)), low, high));
    });
  };
}

void add_choice(OpRegistry& r, const char* name, const std::string& schema, const char* names, ChooseFn choose) {
  OpDef def = make_op({name, OpKind::kComposite, schema.c_str(), names}, nullptr);
  def.choose = std::move(choose);
  r.add(std::move(def));
}

}  // namespace

void register_creation_more(OpRegistry& r) {
  r.add(make_op({"full_strided", OpKind::kCreation,
                 "(SymInt[] size, SymInt[] stride, Scalar value, ScalarType dtype, Device device) -> Tensor", ""},
                full_strided_meta, nullptr, [](LowerContext& c) {
                  const Scalar value = Args(c).scalar(2);
                  const DType dtype = compute_dtype(c.result().dtype);
                  c.pointwise(
                      0, [value, dtype](LoopBuilder& b, std::span<const Expr>) { return number_as(b, value, dtype); });
                }));
  const char* format = ", MemoryFormat? memory_format=None";
  add_choice(r, "empty", schema_with_options("SymInt[] size", format), "torch.empty", [](MetaContext& m) {
    const Device device = plain_device(m, 1);
    return empty(m, m.ints(0), m.dtype(1).value_or(m.default_dtype()), device, 6);
  });
  add_choice(r, "empty_like", schema_with_options("Tensor self", format), "torch.empty_like", empty_like);
  add_choice(r, "new_empty", schema_with_options("Tensor self, SymInt[] size"), "torch.Tensor.new_empty",
             [](MetaContext& m) {
               const Device device = plain_device(m, 2, m.tensor(0).device);
               return full(m.ints(1), Scalar(int64_t{0}), m.dtype(2).value_or(m.tensor(0).dtype), device);
             });
  add_choice(r, "empty_strided", schema_with_options("SymInt[] size, SymInt[] stride"), "torch.empty_strided",
             [](MetaContext& m) {
               const Device device = plain_device(m, 2);
               return full_strided(m.ints(0), m.ints(1), m.dtype(2).value_or(m.default_dtype()), device);
             });
  add_choice(r, "new_empty_strided", schema_with_options("Tensor self, SymInt[] size, SymInt[] stride"),
             "torch.Tensor.new_empty_strided", [](MetaContext& m) {
               const Device device = plain_device(m, 3, m.tensor(0).device);
               return full_strided(m.ints(1), m.ints(2), m.dtype(3).value_or(m.tensor(0).dtype), device);
             });
  add_choice(r, "empty_permuted", schema_with_options("SymInt[] size, int[] physical_layout"), "torch.empty_permuted",
             [](MetaContext& m) {
               const std::vector<Expr> sizes = m.ints(0);
               const std::vector<int64_t> order = concrete(m.ctx(), m.ints(1));
               if (order.size() != sizes.size()) throw InvalidArgument("physical_layout has another length than size");
               std::vector<Expr> strides(sizes.size());
               Expr step = m.ctx().constant(1);
               for (size_t i = order.size(); i-- > 0;) {
                 const auto d = static_cast<size_t>(order[i]);
                 if (d >= sizes.size() || strides[d].valid())
                   throw InvalidArgument("physical_layout is no permutation");
                 strides[d] = step;
                 step = m.ctx().mul(step, m.ctx().max(sizes[d], m.ctx().constant(1)));
               }
               const Device device = plain_device(m, 2);
               return full_strided(sizes, std::move(strides), m.dtype(2).value_or(m.default_dtype()), device);
             });
  add_choice(r, "scalar_tensor", schema_with_options("Scalar s"), "torch.scalar_tensor", [](MetaContext& m) {
    const Device device = plain_device(m, 1);
    return full({}, m.arg(0), m.dtype(1).value_or(m.default_dtype()), device);
  });
  add_choice(r, "new_tensor", schema_with_options("Tensor self, Scalar data"), "torch.Tensor.new_tensor",
             [](MetaContext& m) {
               const Device device = plain_device(m, 2, m.tensor(0).device);
               return full({}, m.arg(1), m.dtype(2).value_or(m.tensor(0).dtype), device);
             });
  // torch.tensor of a Python number; data of other kinds is the tracer's.
  add_choice(r, "tensor", schema_with_options("Scalar data"), "torch.tensor torch.as_tensor", [](MetaContext& m) {
    const Device device = plain_device(m, 1);
    const DType dtype = m.is_tensor(0) ? m.default_dtype() : number_dtype(m, m.scalar(0));
    return full({}, m.arg(0), m.dtype(1).value_or(dtype), device);
  });
  r.take_values({"full", "full_like", "new_full", "scalar_tensor", "tensor", "new_tensor"});
  r.mark(&OpTraits::varies,
         {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"});
  const std::string linear = schema_with_options("Operand start, Operand end, int steps");
  r.add(make_op({"linspace", OpKind::kPointwise, linear.c_str(), "torch.linspace"}, linspace_meta, nullptr,
                lower_linspace(false)));
  const std::string power = schema_with_options("Operand start, Operand end, int steps, float base=10.0");
  r.add(make_op({"logspace", OpKind::kPointwise, power.c_str(), "torch.logspace"}, linspace_meta, nullptr,
                lower_linspace(true)));
  for (const char* end : {"start", "end"}) {
    r.take_value("linspace", end);
    r.take_value("logspace", end);
  }
}

}  // namespace tatara
