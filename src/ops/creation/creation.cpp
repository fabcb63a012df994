// Creation operators: nothing is read but a shape.
#include <cmath>

#include "ops/core/pointwise_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Op = ScalarOp;

DType dtype_of(const Scalar& value, DType default_dtype) {
  if (std::holds_alternative<bool>(value)) return DType::kBool;
  if (std::holds_alternative<double>(value)) return default_dtype;
  if (std::holds_alternative<std::complex<double>>(value)) return complex_dtype(default_dtype);
  return DType::kInt64;
}

/// The options that every factory takes: dtype at `first`, then layout, device, pin_memory, requires_grad.
constexpr const char* kOptions =
    ", *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool "
    "requires_grad=False";

std::string factory(const std::string& head) { return "(" + head + kOptions + ") -> Tensor"; }

Device device_of(MetaContext& m, size_t arg, Device fallback = {}) {
  return m.is_none(arg) ? fallback : std::get<Device>(m.arg(arg));
}

void check_options(MetaContext& m, size_t first) {
  if (!m.is_none(first + 1) && m.string(first + 1) != "strided") throw Unsupported("a sparse result runs in eager");
  if (!m.is_none(first + 3) && m.boolean(first + 3)) throw Unsupported("pinned memory runs in eager");
  if (first + 4 < m.num_args() && !m.is_none(first + 4) && m.boolean(first + 4)) {
    throw Unsupported("requires_grad runs in eager");
  }
}

enum class Fill : uint8_t { kZero, kOne, kArgument, kAny };

ElementFn constant_element(LowerContext& ctx, Fill fill, size_t value_arg) {
  const DType dtype = compute_dtype(ctx.result().dtype);
  if (fill == Fill::kArgument) {
    return [dtype, value_arg, &ctx](LoopBuilder& b, std::span<const Expr>) {
      return operand_at(ctx, b, value_arg, dtype, {});
    };
  }
  const Scalar value = int64_t{fill == Fill::kOne ? 1 : 0};
  return [dtype, value](LoopBuilder& b, std::span<const Expr>) { return number_as(b, value, dtype); };
}

void add_sized(OpRegistry& r, const char* name, const char* names, Fill fill) {
  const bool has_value = fill == Fill::kArgument;
  const size_t first = has_value ? 2 : 1;
  std::string schema = factory(has_value ? "SymInt[] size, Scalar fill_value" : "SymInt[] size");
  r.add(make_op(
      {name, OpKind::kCreation, schema.c_str(), names},
      [first, has_value](MetaContext& m) -> std::vector<TensorType> {
        check_options(m, first);
        TensorType type;
        const bool known = has_value && !m.is_tensor(1);  // what varies is a float
        type.dtype = m.dtype(first).value_or(known ? dtype_of(m.scalar(1), m.default_dtype()) : m.default_dtype());
        type.device = device_of(m, first + 2);
        type.sizes = m.ints(0);
        type.strides = contiguous_strides(m.ctx(), type.sizes);
        return {type};
      },
      nullptr, [fill](LowerContext& ctx) { ctx.pointwise(0, constant_element(ctx, fill, 1)); }));
}

void add_like(OpRegistry& r, const char* name, const char* names, Fill fill) {
  const bool has_value = fill == Fill::kArgument;
  const size_t first = has_value ? 2 : 1;
  std::string schema = factory(has_value ? "Tensor self, Scalar fill_value" : "Tensor self");
  schema.insert(schema.find(") ->"), ", MemoryFormat? memory_format=None");
  r.add(make_op(
      {name, OpKind::kCreation, schema.c_str(), names},
      [first](MetaContext& m) -> std::vector<TensorType> {
        check_options(m, first);
        TensorType type = m.tensor(0);
        type.is_wrapped_number = false;
        type.dtype = m.dtype(first).value_or(type.dtype);
        type.device = device_of(m, first + 2, type.device);
        const std::string format = m.is_none(first + 5) ? "preserve_format" : m.string(first + 5);
        if (format == "contiguous_format") {
          type.strides = contiguous_strides(m.ctx(), type.sizes);
        } else if (format == "preserve_format") {
          const TensorType* one[] = {&m.tensor(0)};
          if (!is_dense(m.ctx(), type)) type.strides = m.iterator_strides(type.sizes, one);
        } else {
          type.strides = layout_strides(m.ctx(), type.sizes, Layout::kChannelsLast);
        }
        return {type};
      },
      nullptr, [fill](LowerContext& ctx) { ctx.pointwise(0, constant_element(ctx, fill, 1)); }));
}

void add_new(OpRegistry& r, const char* name, const char* names, Fill fill) {
  const bool has_value = fill == Fill::kArgument;
  const size_t first = has_value ? 3 : 2;
  std::string schema =
      factory(has_value ? "Tensor self, SymInt[] size, Scalar fill_value" : "Tensor self, SymInt[] size");
  r.add(make_op(
      {name, OpKind::kCreation, schema.c_str(), names},
      [first](MetaContext& m) -> std::vector<TensorType> {
        check_options(m, first);
        TensorType type;
        type.dtype = m.dtype(first).value_or(m.tensor(0).dtype);
        type.device = device_of(m, first + 2, m.tensor(0).device);
        type.sizes = m.ints(1);
        type.strides = contiguous_strides(m.ctx(), type.sizes);
        return {type};
      },
      nullptr, [fill](LowerContext& ctx) { ctx.pointwise(0, constant_element(ctx, fill, 2)); }));
}

// ---- arange ------------------------------------------------------------------------------------------------------------

double as_double(const Scalar& s) {
  if (const auto* d = std::get_if<double>(&s)) return *d;
  if (const auto* n = std::get_if<int64_t>(&s)) return static_cast<double>(*n);
  if (const auto* b = std::get_if<bool>(&s)) return *b ? 1 : 0;
  throw Unsupported("arange over complex numbers");
}

Expr as_expr(ExprContext& ctx, const Scalar& s) {
  if (const auto* e = std::get_if<Expr>(&s)) return *e;
  if (const auto* n = std::get_if<int64_t>(&s)) return ctx.constant(*n);
  return ctx.constant(std::get<bool>(s) ? 1 : 0);
}

/// For results of an integer type: a floating number without a fraction is an integer.
Scalar whole(const Scalar& s) {
  const auto* number = std::get_if<double>(&s);
  if (number == nullptr) return s;
  constexpr double kExact = 0x1p53;
  if (*number != std::trunc(*number) || std::abs(*number) > kExact) {
    throw Unsupported("arange of integers from fractions runs in eager");
  }
  return static_cast<int64_t>(*number);
}

std::vector<TensorType> arange_meta(MetaContext& m) {
  check_options(m, 3);
  ExprContext& c = m.ctx();
  Scalar start = m.scalar(0), end = m.scalar(1), step = m.scalar(2);
  TensorType type;
  bool floating = std::holds_alternative<double>(start) || std::holds_alternative<double>(end) ||
                  std::holds_alternative<double>(step);
  type.dtype = m.dtype(3).value_or(floating ? m.default_dtype() : DType::kInt64);
  if (is_complex(type.dtype) || type.dtype == DType::kBool) {
    throw InvalidArgument("\"arange_cpu\" not implemented for this type");
  }
  type.device = device_of(m, 5);
  if (floating && !is_floating(type.dtype)) {
    for (Scalar* each : {&start, &end, &step}) *each = whole(*each);
    floating = false;
  }
  if (floating) {
    const double count = std::ceil((as_double(end) - as_double(start)) / as_double(step));
    if (!(count >= 0) || as_double(step) == 0)
      throw InvalidArgument("upper bound and lower bound inconsistent with step sign");
    type.sizes = {c.constant(static_cast<int64_t>(count))};
  } else {
    const Expr by = as_expr(c, step);
    if (!by.is_const()) throw Unsupported("arange with a symbolic step");
    if (by.is_const(0)) throw InvalidArgument("step must be nonzero");
    const Expr gap = c.sub(as_expr(c, end), as_expr(c, start));
    const bool up = by.const_value() > 0;
    if (!c.guard(up ? c.le(c.constant(0), gap) : c.le(gap, c.constant(0)))) {
      throw InvalidArgument("upper bound and lower bound inconsistent with step sign");
    }
    type.sizes = {c.simplify(up ? c.ceildiv(gap, by) : c.ceildiv(c.neg(gap), c.neg(by)))};
  }
  type.strides = {c.constant(1)};
  return {type};
}

void arange_lower(LowerContext& ctx) {
  const DType dtype = compute_dtype(ctx.result().dtype);
  Scalar start = std::get<Scalar>(ctx.node().args[0]), step = std::get<Scalar>(ctx.node().args[2]);
  if (!is_floating(dtype)) {
    start = whole(start);
    step = whole(step);
  }
  ExprContext& c = ctx.ctx();
  ctx.pointwise(0, [dtype, start, step, &c](LoopBuilder& b, std::span<const Expr> indices) {
    const bool floating = std::holds_alternative<double>(start) || std::holds_alternative<double>(step);
    if (!floating) {
      const Expr value = c.add(as_expr(c, start), c.mul(as_expr(c, step), indices[0]));
      return b.index_value(value, dtype);
    }
    // Eager computes in double for double, in the accumulation type otherwise.
    const DType wide = dtype == DType::kFloat32 || !is_floating(dtype) ? DType::kFloat64 : dtype;
    const ScalarId product = b.apply2(Op::kMul, number_as(b, step, wide), b.index_value(indices[0], wide));
    return b.cast(b.apply2(Op::kAdd, number_as(b, start, wide), product), dtype);
  });
}

OpDef chooser(const char* name, std::string schema, const char* names, ChooseFn choose) {
  OpDef def;
  def.name = name;
  def.kind = OpKind::kComposite;
  def.schema_text = std::move(schema);
  def.names = names;
  def.choose = std::move(choose);
  return def;
}

void add_arange(OpRegistry& r) {
  const auto pass = [](MetaContext& m, Arg start, Arg end, Arg step, size_t first) -> Choice {
    return {"arange.step",
            {std::move(start), std::move(end), std::move(step), m.arg(first), m.arg(first + 1), m.arg(first + 2),
             m.arg(first + 3), m.arg(first + 4)}};
  };
  r.add(chooser("arange", factory("Scalar end"), "torch.arange",
                [pass](MetaContext& m) { return pass(m, Scalar(int64_t{0}), m.arg(0), Scalar(int64_t{1}), 1); }));
  r.add(chooser("arange.start", factory("Scalar start, Scalar end"), "torch.arange",
                [pass](MetaContext& m) { return pass(m, m.arg(0), m.arg(1), Scalar(int64_t{1}), 2); }));
  const std::string schema = factory("Scalar start, Scalar end, Scalar step=1");
  r.add(
      make_op({"arange.step", OpKind::kCreation, schema.c_str(), "torch.arange"}, arange_meta, nullptr, arange_lower));
}

void add_eye(OpRegistry& r) {
  const std::string schema = factory("SymInt n, SymInt m");
  r.add(make_op(
      {"eye.m", OpKind::kCreation, schema.c_str(), "torch.eye"},
      [](MetaContext& m) -> std::vector<TensorType> {
        check_options(m, 2);
        TensorType type;
        type.dtype = m.dtype(2).value_or(m.default_dtype());
        type.device = device_of(m, 4);
        type.sizes = {m.ints(0).front(), m.ints(1).front()};
        type.strides = contiguous_strides(m.ctx(), type.sizes);
        return {type};
      },
      nullptr,
      [](LowerContext& ctx) {
        const DType dtype = compute_dtype(ctx.result().dtype);
        ctx.pointwise(0, [dtype](LoopBuilder& b, std::span<const Expr> indices) {
          const ScalarId row = b.index_value(indices[0], DType::kInt64);
          const ScalarId column = b.index_value(indices[1], DType::kInt64);
          return b.cast(b.compare(Op::kEq, row, column), dtype);
        });
      }));
  r.add(chooser("eye", factory("SymInt n"), "torch.eye", [](MetaContext& m) -> Choice {
    return {"eye.m", {m.arg(0), m.arg(0), m.arg(1), m.arg(2), m.arg(3), m.arg(4), m.arg(5)}};
  }));
}

}  // namespace

void register_creation(OpRegistry& r) {
  add_sized(r, "zeros", "torch.zeros", Fill::kZero);
  add_sized(r, "ones", "torch.ones", Fill::kOne);
  add_sized(r, "full", "torch.full", Fill::kArgument);
  add_like(r, "zeros_like", "torch.zeros_like", Fill::kZero);
  add_like(r, "ones_like", "torch.ones_like", Fill::kOne);
  add_like(r, "full_like", "torch.full_like", Fill::kArgument);
  add_new(r, "new_zeros", "torch.Tensor.new_zeros", Fill::kZero);
  add_new(r, "new_ones", "torch.Tensor.new_ones", Fill::kOne);
  add_new(r, "new_full", "torch.Tensor.new_full", Fill::kArgument);
  add_arange(r);
  add_eye(r);
  r.mark(&OpTraits::fills, {"full"});
}

}  // namespace tatara
