// Pointwise operators of three operands and more, conversions and copies.
#include <limits>

#include "ops/core/pointwise_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Op = ScalarOp;

MetaFn where_meta() {
  return [](MetaContext& m) -> std::vector<TensorType> {
    const DType condition = m.tensor(0).dtype;
    if (condition != DType::kBool && condition != DType::kUInt8) {
      throw InvalidArgument("where expected condition to be a boolean tensor, but got a tensor with dtype " +
                            std::string(dtype_name(condition)));
    }
    const size_t values[] = {1, 2};
    const size_t all[] = {0, 1, 2};
    return {pointwise_type(m, all, m.result_type(values))};
  };
}

void where_lower(LowerContext& ctx) {
  const DType dtype = compute_dtype(ctx.result().dtype);
  ctx.pointwise(0, [&ctx, dtype](LoopBuilder& b, std::span<const Expr> indices) {
    return b.select(operand_at(ctx, b, 0, DType::kBool, indices), operand_at(ctx, b, 1, dtype, indices),
                    operand_at(ctx, b, 2, dtype, indices));
  });
}

/// Stops the kernel where `fault` is true, as an index out of bounds does.
void stop_where(LoopBuilder& b, ScalarId fault) {
  b.indirect(b.cast(fault, DType::kInt64), b.ctx().constant(1), false, true);
}

void lower_checked(LowerContext& ctx) {
  const DType dtype = compute_dtype(ctx.result().dtype);
  ctx.pointwise(0, [&ctx, dtype](LoopBuilder& b, std::span<const Expr> indices) {
    stop_where(b, operand_at(ctx, b, 1, DType::kBool, indices));
    return operand_at(ctx, b, 0, dtype, indices);
  });
}

void lower_decided(LowerContext& ctx) {
  ctx.pointwise(0, [&ctx](LoopBuilder& b, std::span<const Expr> indices) {
    const ScalarId fault = operand_at(ctx, b, 0, DType::kBool, indices);
    stop_where(b, fault);
    return fault;
  });
}

void lower_finite(LowerContext& ctx) {
  const DType dtype = compute_dtype(ctx.result().dtype);
  ctx.pointwise(0, [&ctx, dtype](LoopBuilder& b, std::span<const Expr> indices) {
    const ScalarId x = operand_at(ctx, b, 0, dtype, indices);
    const DType part = real_dtype(dtype);
    const ScalarId most = b.constant(std::numeric_limits<double>::infinity(), part);
    const auto infinite = [&](ScalarId value) {
      return b.apply1(Op::kNot, b.compare(Op::kLt, b.apply(Op::kAbs, part, std::vector<ScalarId>{value}), most));
    };
    if (is_complex(dtype)) {
      stop_where(b, b.apply2(Op::kOr, infinite(b.apply(Op::kReal, part, std::vector<ScalarId>{x})),
                             infinite(b.apply(Op::kImag, part, std::vector<ScalarId>{x}))));
    } else {
      stop_where(b, infinite(x));
    }
    return x;
  });
}

/// Operand 0 as it is, when its elements are what they should be: else the kernel stops.
void register_checks(OpRegistry& r) {
  const auto meta = [](MetaContext& m) -> std::vector<TensorType> {
    TensorType type = m.tensor(0);
    const TensorType* operands[] = {&m.tensor(0)};
    if (!is_dense(m.ctx(), type)) type.strides = m.iterator_strides(type.sizes, operands);
    return {type};
  };
  r.add(make_op({"checked", OpKind::kPointwise, "(Tensor self, Tensor fault) -> Tensor", ""}, meta, nullptr,
                lower_checked));
  r.add(make_op({"checked_finite", OpKind::kPointwise, "(Tensor self) -> Tensor", ""}, meta, nullptr, lower_finite));
  // Of a condition that the program has asked for: its kernel comes before all that writes to inputs (order_units).
  r.add(make_op({"decided", OpKind::kPointwise, "(Tensor fault) -> Tensor", ""}, meta, nullptr, lower_decided));
  // The same on a GPU, whose kernels report after the fact: the host waits for the condition. The result is never written.
  r.add(make_op({"decided_on_host", OpKind::kHost, "(Tensor fault) -> Tensor", ""}, meta));
  OpDef& on_host = r.amend("decided_on_host");
  on_host.host_name = kDecideCall;
  on_host.host_overload = "out";
  for (const char* name : {"checked", "checked_finite", "decided", "decided_on_host"})
    r.amend(name).checks_values = true;
  r.mark(&OpTraits::unnamed, {"checked", "checked_finite", "decided", "decided_on_host"});
  for (const char* name : {"decided", "decided_on_host"}) r.amend(name).decides = true;
}

enum class Bound : uint8_t { kBoth, kMin, kMax };

MetaFn clamp_meta(Bound bound) {
  return [bound](MetaContext& m) -> std::vector<TensorType> {
    std::vector<size_t> operands = {0};
    for (size_t i = 1; i < m.num_args(); ++i) {
      if (!m.is_none(i)) operands.push_back(i);
    }
    if (operands.size() == 1) throw InvalidArgument("torch.clamp: At least one of 'min' or 'max' must not be None");
    (void)bound;
    const DType dtype = m.result_type(operands);
    if (is_complex(dtype)) throw InvalidArgument("clamp is not supported for complex types");
    if (dtype == DType::kBool) throw Unsupported("clamp of bool runs by the host");
    return {pointwise_type(m, operands, dtype, Numbers::kParameters)};
  };
}

LowerFn clamp_lower(Bound bound) {
  return [bound](LowerContext& ctx) {
    const DType dtype = compute_dtype(ctx.result().dtype);
    ctx.pointwise(0, [&ctx, dtype, bound](LoopBuilder& b, std::span<const Expr> indices) {
      ScalarId x = operand_at(ctx, b, 0, dtype, indices);
      const auto apply = [&](size_t arg, Op op) {
        if (arg >= ctx.node().args.size() || std::holds_alternative<NoneArg>(ctx.node().args[arg])) return;
        x = b.apply2(op, x, operand_at(ctx, b, arg, dtype, indices));
      };
      if (bound != Bound::kMax) apply(1, Op::kMax);
      if (bound == Bound::kBoth) apply(2, Op::kMin);
      if (bound == Bound::kMax) apply(1, Op::kMin);
      return x;
    });
  };
}

/// addcmul, addcdiv: self + value * a (*|/) b.
LowerFn addc_lower(Op op) {
  return [op](LowerContext& ctx) {
    const DType common = ctx.result().dtype, dtype = compute_dtype(common);
    ctx.pointwise(0, [&ctx, common, dtype, op](LoopBuilder& b, std::span<const Expr> indices) {
      const ScalarId self = converted_at(ctx, b, 0, common, false, indices);
      const ScalarId a = converted_at(ctx, b, 1, common, false, indices);
      const ScalarId c = converted_at(ctx, b, 2, common, false, indices);
      // Eager's order of operations: self + (value * a) op b.
      const ScalarId scaled = b.apply2(Op::kMul, operand_at(ctx, b, 3, dtype, {}), a);
      return b.apply2(Op::kAdd, self, b.apply2(op, scaled, c));
    });
  };
}

MetaFn addc_meta(bool division) {
  return [division](MetaContext& m) -> std::vector<TensorType> {
    const size_t all[] = {0, 1, 2};
    const DType dtype = m.result_type(all);
    if (dtype == DType::kBool) throw InvalidArgument("\"addcmul_cpu_out\" not implemented for 'Bool'");
    if (division && !is_floating(dtype) && !is_complex(dtype))
      throw InvalidArgument("addcdiv of integers is not supported");
    return {pointwise_type(m, all, dtype)};
  };
}

void lerp_lower(LowerContext& ctx) {
  const DType common = ctx.result().dtype, dtype = compute_dtype(common);
  const int number = ctx.operand_number(2);
  const bool is_number = number < 0 || ctx.operand(number).is_wrapped_number;  // a parameter of eager's kernel
  ctx.pointwise(0, [&ctx, common, dtype, is_number](LoopBuilder& b, std::span<const Expr> indices) {
    const ScalarId start = converted_at(ctx, b, 0, common, false, indices);
    const ScalarId end = converted_at(ctx, b, 1, common, false, indices);
    const ScalarId weight = converted_at(ctx, b, 2, common, is_number, indices);
    // As eager: from the nearer end, so that weight 1 gives the end exactly.
    const ScalarId gap = b.apply2(Op::kSub, end, start);
    const ScalarId low = b.apply2(Op::kAdd, start, b.apply2(Op::kMul, weight, gap));
    const ScalarId rest = b.apply2(Op::kSub, b.constant(1, dtype), weight);
    const ScalarId high = b.apply2(Op::kSub, end, b.apply2(Op::kMul, gap, rest));
    return b.select(b.compare(Op::kLt, b.apply1(Op::kAbs, weight), b.constant(0.5, dtype)), low, high);
  });
}

/// The operand's value, cast to the result's dtype, at the same place.
void copy_lower(LowerContext& ctx) {
  ctx.pointwise(0, [&ctx](LoopBuilder& b, std::span<const Expr> indices) {
    return operand_at(ctx, b, 0, compute_dtype(ctx.operand(0).dtype), indices);
  });
}

MetaFn clone_meta(size_t format) {
  return [format](MetaContext& m) -> std::vector<TensorType> {
    TensorType type = m.tensor(0);
    type.is_wrapped_number = false;
    const std::string name = m.is_none(format) ? "preserve_format" : m.string(format);
    if (name == "contiguous_format") {
      type.strides = contiguous_strides(m.ctx(), type.sizes);
    } else if (name == "channels_last" || name == "channels_last_3d") {
      type.strides = layout_strides(m.ctx(), type.sizes, Layout::kChannelsLast);
    } else {
      type.strides = preserved_strides(m, m.tensor(0));
    }
    return {type};
  };
}

MetaFn cast_meta(size_t dtype_arg) {
  return [dtype_arg](MetaContext& m) -> std::vector<TensorType> {
    TensorType type = m.tensor(0);
    type.is_wrapped_number = false;
    type.strides = preserved_strides(m, m.tensor(0));
    type.dtype = m.dtype(dtype_arg).value_or(type.dtype);
    return {type};
  };
}

ChooseFn to_dtype(size_t dtype_arg, std::optional<DType> fixed, size_t copy_arg) {
  return [=](MetaContext& m) -> Choice {
    const DType dtype = fixed ? *fixed : m.dtype(dtype_arg).value_or(m.tensor(0).dtype);
    const bool copy = copy_arg != 0 && copy_arg < m.num_args() && m.boolean(copy_arg);
    if (dtype == m.tensor(0).dtype) {
      return copy ? Choice{"clone", {m.arg(0), NoneArg{}}} : Choice{"alias_self", {}};
    }
    return {"cast", {m.arg(0), dtype}};
  };
}

constexpr const char* kToAnotherDevice = "a copy to another device runs in eager";

/// A copy from the CPU to a GPU is an operator, for what is computed from no input (transforms/place_constants.cpp) and for numbers.
Choice to_gpu(MetaContext& m, const Device& device, DType dtype) {
  if (device.kind != DeviceKind::kCuda || m.tensor(0).device.kind != DeviceKind::kCpu) {
    throw Unsupported(kToAnotherDevice);
  }
  return {"to_gpu", {m.arg(0), device, dtype}};
}

Choice to_other(MetaContext& m, size_t copy_arg) {
  if (!(m.tensor(0).device == m.tensor(1).device)) return to_gpu(m, m.tensor(1).device, m.tensor(1).dtype);
  return to_dtype(0, m.tensor(1).dtype, copy_arg)(m);
}

void require_rank_of_format(const std::string& format, const TensorType& self) {
  if (format == "channels_last" && self.dim() != 4) {
    throw InvalidArgument("required rank 4 tensor to use channels_last format");
  }
  if (format == "channels_last_3d" && self.dim() != 5) {
    throw InvalidArgument("required rank 5 tensor to use channels_last_3d format");
  }
}

/// A conversion with memory_format=: a copy where the layout that the strides suggest is another one, or the dtype.
ChooseFn with_format(size_t format_arg, ChooseFn convert) {
  return [=](MetaContext& m) -> Choice {
    const std::string format = m.is_none(format_arg) ? "preserve_format" : m.string(format_arg);
    const Choice choice = convert(m);
    if (format == "preserve_format") return choice;
    const TensorType& self = m.tensor(0);
    const char* last = self.dim() == 5 ? "channels_last_3d" : "channels_last";
    const char* suggested = suggested_layout(m.ctx(), self) == Layout::kChannelsLast ? last : "contiguous_format";
    if (choice.op == "alias_self" && format == suggested) return choice;
    if (choice.op == "to_gpu") throw Unsupported(kToAnotherDevice);
    require_rank_of_format(format, self);
    if (choice.op != "cast") return {"clone", {m.arg(0), format}};
    return {"cast_format", {m.arg(0), choice.args[1], format}};
  };
}

OpDef chooser(const char* name, const char* schema, const char* names, ChooseFn choose) {
  OpDef def;
  def.name = name;
  def.kind = OpKind::kComposite;
  def.schema_text = schema;
  def.names = names;
  def.choose = std::move(choose);
  return def;
}

void register_conversions(OpRegistry& r) {
  r.add(make_op({"cast", OpKind::kPointwise, "(Tensor self, ScalarType dtype) -> Tensor", ""}, cast_meta(1), nullptr,
                copy_lower));
  // A value of float64 without dimensions, which takes part in promotion as a number of Python's does.
  r.add(make_op(
      {"as_number", OpKind::kPointwise, "(Tensor self) -> Tensor", ""},
      [](MetaContext& m) -> std::vector<TensorType> {
        TensorType type = m.tensor(0);
        type.is_wrapped_number = true;
        return {type};
      },
      nullptr, copy_lower));
  r.amend("as_number").not_differentiable = true;
  r.amend("as_number").traits.unnamed = true;
  r.add(make_op(
      {"cast_format", OpKind::kPointwise, "(Tensor self, ScalarType dtype, MemoryFormat memory_format) -> Tensor", ""},
      [](MetaContext& m) {
        std::vector<TensorType> types = clone_meta(2)(m);
        types[0].dtype = *m.dtype(1);
        return types;
      },
      nullptr, copy_lower));
  r.add(make_op(
      {"to_gpu", OpKind::kPointwise, "(Tensor self, Device device, ScalarType dtype) -> Tensor", ""},
      [](MetaContext& m) {
        std::vector<TensorType> types = cast_meta(2)(m);
        types[0].device = std::get<Device>(m.arg(1));
        return types;
      },
      nullptr, copy_lower));
  r.add(make_op({"clone", OpKind::kPointwise, "(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
                 "torch.clone torch.Tensor.clone"},
                clone_meta(1), nullptr, copy_lower));
  r.add(chooser("contiguous", "(Tensor self, *, MemoryFormat memory_format=contiguous_format) -> Tensor",
                "torch.Tensor.contiguous", [](MetaContext& m) -> Choice {
                  const std::string format = m.string(1);
                  const TensorType& self = m.tensor(0);
                  if (format == "preserve_format") throw Unsupported("contiguous() that preserves the memory format");
                  require_rank_of_format(format, self);
                  const bool is_so = format == "contiguous_format" ? is_contiguous(m.ctx(), self)
                                                                   : is_contiguous_channels_last(m.ctx(), self);
                  if (is_so) return {"alias_self", {}};
                  return {"clone", {m.arg(0), format}};
                }));
  r.add(chooser("to.dtype",
                "(Tensor self, ScalarType dtype, bool non_blocking=False, bool copy=False, *, MemoryFormat? "
                "memory_format=None) -> Tensor",
                "torch.Tensor.to", with_format(4, to_dtype(1, std::nullopt, 3))));
  r.add(
      chooser("to.device",
              "(Tensor self, Device? device=None, ScalarType? dtype=None, bool non_blocking=False, bool copy=False, *, "
              "MemoryFormat? memory_format=None) -> Tensor",
              "torch.Tensor.to", with_format(5, [](MetaContext& m) -> Choice {
                if (!m.is_none(1) && !(std::get<Device>(m.arg(1)) == m.tensor(0).device)) {
                  return to_gpu(m, std::get<Device>(m.arg(1)), m.dtype(2).value_or(m.tensor(0).dtype));
                }
                return to_dtype(2, std::nullopt, 4)(m);
              })));
  r.add(chooser("to.other",
                "(Tensor self, Tensor other, bool non_blocking=False, bool copy=False, *, MemoryFormat? "
                "memory_format=None) -> Tensor",
                "torch.Tensor.to", with_format(4, [](MetaContext& m) -> Choice { return to_other(m, 3); })));
  r.add(chooser("type_as", "(Tensor self, Tensor other) -> Tensor", "torch.Tensor.type_as",
                [](MetaContext& m) -> Choice { return to_other(m, 0); }));
  const std::pair<const char*, DType> names[] = {
      {"bool", DType::kBool},      {"byte", DType::kUInt8},        {"char", DType::kInt8},
      {"short", DType::kInt16},    {"int", DType::kInt32},         {"long", DType::kInt64},
      {"half", DType::kFloat16},   {"bfloat16", DType::kBFloat16}, {"float", DType::kFloat32},
      {"double", DType::kFloat64}, {"cfloat", DType::kComplex64},  {"cdouble", DType::kComplex128},
  };
  for (const auto& [name, dtype] : names) {
    const std::string full = std::string("to_") + name;
    const std::string method = std::string("torch.Tensor.") + name;
    r.add(chooser(full.c_str(), "(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor", method.c_str(),
                  with_format(1, to_dtype(0, dtype, 0))));
  }
}

}  // namespace

void register_pointwise_misc(OpRegistry& r) {
  r.add(
      make_op({"where", OpKind::kPointwise, "(Tensor condition, Operand self, Operand other) -> Tensor", "torch.where"},
              where_meta(), nullptr, where_lower));
  OpDef method = make_op({"where.method", OpKind::kComposite,
                          "(Operand self, Tensor condition, Operand other) -> Tensor", "torch.Tensor.where"},
                         nullptr);
  method.choose = [](MetaContext& m) -> Choice { return {"where", {m.arg(1), m.arg(0), m.arg(2)}}; };
  r.add(std::move(method));
  r.add(
      make_op({"clamp", OpKind::kPointwise, "(Tensor self, Operand min=None, Operand max=None) -> Tensor",
               "torch.clamp torch.clip torch.Tensor.clamp torch.Tensor.clip", "torch.Tensor.clamp_ torch.Tensor.clip_"},
              clamp_meta(Bound::kBoth), nullptr, clamp_lower(Bound::kBoth)));
  r.add(make_op({"clamp_min", OpKind::kPointwise, "(Tensor self, Operand min) -> Tensor",
                 "torch.clamp_min torch.Tensor.clamp_min", "torch.Tensor.clamp_min_"},
                clamp_meta(Bound::kMin), nullptr, clamp_lower(Bound::kMin)));
  r.add(make_op({"clamp_max", OpKind::kPointwise, "(Tensor self, Operand max) -> Tensor",
                 "torch.clamp_max torch.Tensor.clamp_max", "torch.Tensor.clamp_max_"},
                clamp_meta(Bound::kMax), nullptr, clamp_lower(Bound::kMax)));
  const char* addc = "(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor";
  r.add(make_op({"addcmul", OpKind::kPointwise, addc, "torch.addcmul torch.Tensor.addcmul", "torch.Tensor.addcmul_"},
                addc_meta(false), nullptr, addc_lower(Op::kMul)));
  r.add(make_op({"addcdiv", OpKind::kPointwise, addc, "torch.addcdiv torch.Tensor.addcdiv", "torch.Tensor.addcdiv_"},
                addc_meta(true), nullptr, addc_lower(Op::kDiv)));
  r.add(make_op(
      {"lerp", OpKind::kPointwise, "(Tensor self, Tensor end, Operand weight) -> Tensor",
       "torch.lerp torch.Tensor.lerp", "torch.Tensor.lerp_"},
      [](MetaContext& m) -> std::vector<TensorType> {
        const size_t all[] = {0, 1, 2};
        const size_t ends[] = {0, 1};
        const DType dtype = m.tensor(0).dtype;
        if (!is_floating(dtype) || m.result_type(ends) != dtype) throw Unsupported("lerp of these types");
        return {
            pointwise_type(m, m.is_tensor(2) ? std::span<const size_t>(all) : std::span<const size_t>(ends), dtype)};
      },
      nullptr, lerp_lower));
  // In-place only: the value that self becomes.
  r.add(make_op(
      {"copy", OpKind::kPointwise, "(Tensor self, Tensor src, bool non_blocking=False) -> Tensor", "",
       "torch.Tensor.copy_"},
      [](MetaContext& m) -> std::vector<TensorType> {
        TensorType type = m.tensor(0);
        const std::vector<Expr>* shapes[] = {&type.sizes, &m.tensor(1).sizes};
        if (m.broadcast(shapes) != type.sizes) throw InvalidArgument("copy_ does not broadcast its destination");
        return {type};
      },
      nullptr,
      [](LowerContext& ctx) {
        ctx.pointwise(0, [&ctx](LoopBuilder& b, std::span<const Expr> indices) {
          return operand_at(ctx, b, 1, compute_dtype(ctx.operand(1).dtype), indices);
        });
      }));
  const auto fill_meta = [](MetaContext& m) -> std::vector<TensorType> {
    TensorType type = m.tensor(0);
    const TensorType* operands[] = {&m.tensor(0)};
    if (!is_dense(m.ctx(), type)) type.strides = m.iterator_strides(type.sizes, operands);
    return {type};
  };
  r.add(make_op({"fill", OpKind::kPointwise, "(Tensor self, Operand value) -> Tensor", "torch.fill",
                 "torch.Tensor.fill_ torch.fill_"},
                fill_meta, nullptr, [](LowerContext& ctx) {
                  ctx.pointwise(0, [&ctx](LoopBuilder& b, std::span<const Expr> indices) {
                    return operand_at(ctx, b, 1, compute_dtype(ctx.result().dtype), indices);
                  });
                }));
  r.add(make_op({"zero", OpKind::kPointwise, "(Tensor self) -> Tensor", "", "torch.Tensor.zero_ torch.zero_"},
                fill_meta, nullptr, [](LowerContext& ctx) {
                  const DType dtype = compute_dtype(ctx.result().dtype);
                  ctx.pointwise(0, [dtype](LoopBuilder& b, std::span<const Expr>) {
                    return number_as(b, Scalar(int64_t{0}), dtype);
                  });
                }));
  register_conversions(r);
  register_checks(r);
  r.take_values({"addcmul", "addcdiv"});
  for (const char* bound : {"min", "max"}) {
    r.take_value("clamp", bound);
    r.take_value(bound == std::string_view("min") ? "clamp_min" : "clamp_max", bound);
  }
  for (const char* side : {"self", "other"}) {
    r.take_value("where", side);
    r.take_value("where.method", side);
  }
  r.take_value("fill", "value");
  r.take_value("lerp", "weight");
  r.mark(&OpTraits::scales_sum, {"addcmul", "addcdiv"});
  r.mark(&OpTraits::repeats_operand, {"cast"});
  r.mark(&OpTraits::unnamed, {"cast"});
  r.mark(&OpTraits::may_view, {"contiguous", "to.dtype", "to.device", "to.other"});
}

}  // namespace tatara
