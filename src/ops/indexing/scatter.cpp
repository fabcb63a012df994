// Reading and writing at an index of its own for each element: gather, scatter and their reductions.
#include <algorithm>
#include <limits>
#include <optional>

#include "ops/core/pointwise_util.h"
#include "ops/indexing/indexing_util.h"
#include "support/error.h"

namespace tatara {

ScalarId ops::scalar_constant(LoopBuilder& b, const Scalar& value, DType dtype) {
  const DType wide = compute_dtype(dtype);
  if (const auto* c = std::get_if<std::complex<double>>(&value)) {
    return is_complex(wide) ? b.constant_complex(c->real(), c->imag(), wide) : b.constant(c->real(), wide);
  }
  if (const auto* e = std::get_if<Expr>(&value)) return b.index_value(*e, wide);
  double real = 0;
  int64_t integer = 0;
  if (const auto* d = std::get_if<double>(&value)) {
    real = *d;
    if (!is_floating(wide) && !is_complex(wide)) integer = static_cast<int64_t>(*d);
  } else {
    integer = std::holds_alternative<bool>(value) ? std::get<bool>(value) : std::get<int64_t>(value);
    real = static_cast<double>(integer);
  }
  if (is_complex(wide)) return b.constant_complex(real, 0, wide);
  if (is_floating(wide)) return b.constant(real, wide);
  if (wide == DType::kBool) integer = integer != 0 || real != 0 ? 1 : 0;
  return b.constant_int(integer, wide);
}

namespace {

constexpr int64_t kWideElements = int64_t{1} << 27;  // of a result that is made in wider numbers first
constexpr int64_t kFewAdded = 64;  // times fewer elements than the result has: these are added in order

/// The type that a GPU's memory adds in place of this one.
std::optional<DType> added_as(DType dtype) {
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) return DType::kFloat32;
  if (dtype == DType::kInt8 || dtype == DType::kUInt8 || dtype == DType::kInt16) return DType::kInt32;
  return std::nullopt;
}

int64_t elements(GraphBuilder& b, ValueId v) { return b.ctx().evaluate_hint(b.type(v).numel(b.ctx())).value_or(1); }

}  // namespace

std::vector<ValueId> ops::add_in_wide(GraphBuilder& b, std::string_view op, std::span<const Arg> arguments,
                                      size_t source) {
  const Args args(b, arguments);
  const DType dtype = args.type(0).dtype;
  const std::optional<DType> wide = added_as(dtype);
  if (!wide || args.type(0).device.kind != DeviceKind::kCuda || !args.is_tensor(source)) return {};
  const int64_t result = elements(b, args.tensor(0));
  if (result > kWideElements || elements(b, args.tensor(source)) * kFewAdded < result) return {};
  std::vector<Arg> given(arguments.begin(), arguments.end());
  for (const size_t i : {size_t{0}, source}) given[i] = TensorArg{b.cast(args.tensor(i), *wide)};
  return {b.cast(b.op(op, std::move(given)), dtype)};
}

namespace {

using namespace ops;
using Values = std::vector<ValueId>;
using loops::StoreMode;

/// Rules that gather and scatter share: equal ranks, index no larger than the other off the dimension.
void check_gather(const TensorType& self, const TensorType& index, const char* what) {
  const bool empty = std::any_of(index.sizes.begin(), index.sizes.end(), [](Expr e) { return e.is_const(0); });
  if (!empty && index.dtype != DType::kInt64 && index.dtype != DType::kInt32) {
    throw InvalidArgument(str_cat(what, "(): Expected dtype int64 for index"));
  }
  if (empty && self.dim() != index.dim()) throw Unsupported(str_cat(what, " at no places of another rank"));
  if (std::max<int64_t>(self.dim(), 1) != std::max<int64_t>(index.dim(), 1)) {
    throw InvalidArgument("Index tensor must have the same number of dimensions as input tensor");
  }
}

std::vector<TensorType> gather_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  const TensorType& index = m.tensor(2);
  check_gather(self, index, "gather");
  const int64_t dim = m.dim(1, self.dim());
  for (int64_t d = 0; d < std::min(self.dim(), index.dim()); ++d) {
    const auto i = static_cast<size_t>(d);
    if (d == dim || index.sizes[i] == self.sizes[i]) continue;
    if (!m.ctx().guard(m.ctx().le(index.sizes[i], self.sizes[i]))) {
      throw InvalidArgument("Size does not match: index must not be larger than self apart from the dimension");
    }
  }
  return {contiguous_type(m.ctx(), self.dtype, self.device, index.sizes)};
}

void lower_gather(LowerContext& ctx) {
  const TensorType self = ctx.operand(0);
  const auto dim = static_cast<size_t>(Args(ctx).dim(1, self.dim()));
  ctx.pointwise(0, [=, index_rank = ctx.operand(1).dim()](LoopBuilder& b, std::span<const Expr> out) {
    std::vector<Expr> at(out.begin(), out.end());
    const std::vector<Expr> none;
    const ScalarId value = b.load(1, index_rank == 0 ? std::span<const Expr>(none) : out);
    if (self.dim() == 0) return b.load(0, none);
    if (at.empty()) at.push_back(b.ctx().constant(0));
    at[dim] = lookup(b, value, self.sizes[dim], false);
    return b.load(0, at);
  });
}

std::vector<TensorType> scatter_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  check_gather(self, m.tensor(2), "scatter");
  const int64_t dim = m.dim(1, self.dim());
  const TensorType& index = m.tensor(2);
  if (m.is_tensor(3) && !m.tensor(3).is_wrapped_number) {
    const TensorType& src = m.tensor(3);
    if (src.dtype != self.dtype) throw InvalidArgument("scatter(): Expected self.dtype to be equal to src.dtype");
    if (src.dim() != index.dim()) throw InvalidArgument("scatter: index and src must have the same rank");
    for (size_t i = 0; i < index.sizes.size(); ++i) {
      if (!(index.sizes[i] == src.sizes[i]) && !m.ctx().guard(m.ctx().le(index.sizes[i], src.sizes[i]))) {
        throw InvalidArgument("Expected index to be smaller than src");
      }
    }
  }
  for (size_t i = 0; i < std::min(self.sizes.size(), index.sizes.size()); ++i) {
    if (static_cast<int64_t>(i) == dim || index.sizes[i] == self.sizes[i]) continue;
    if (!m.ctx().guard(m.ctx().le(index.sizes[i], self.sizes[i]))) {
      throw InvalidArgument("Expected index to be no larger than self apart from the dimension");
    }
  }
  return {contiguous_type(m.ctx(), self.dtype, self.device, self.sizes)};
}

/// self[index along dim] (mode)= value, where value(b, position in index) is given.
void scatter_along(LowerContext& ctx, StoreMode mode, ElementFn value) {
  const TensorType self = ctx.operand(0);
  const TensorType index = ctx.operand(1);
  const auto dim = static_cast<size_t>(Args(ctx).dim(1, self.dim()));
  ScatterDef def;
  def.domain = index.sizes;
  def.destination = [=](LoopBuilder& b, std::span<const Expr> iter) {
    std::vector<Expr> at(iter.begin(), iter.end());
    const ScalarId target = b.load(1, iter);
    if (self.dim() == 0) return std::vector<Expr>{};
    if (at.empty()) at.push_back(b.ctx().constant(0));
    at[dim] = lookup(b, target, self.sizes[dim], false);
    return at;
  };
  def.value = std::move(value);
  def.mode = mode;
  ctx.scatter(std::move(def));
}

void lower_scatter(LowerContext& ctx, StoreMode mode) {
  const Args args(ctx);
  if (args.is_tensor(3) && ctx.operand(2).dim() == ctx.operand(1).dim() && !ctx.operand(2).is_wrapped_number) {
    scatter_along(ctx, mode, operand_value(2));
    return;
  }
  const DType dtype = args.is_tensor(3) ? compute_dtype(ctx.result().dtype) : ctx.result().dtype;
  scatter_along(ctx, mode,
                [dtype, &ctx](LoopBuilder& b, std::span<const Expr>) { return operand_at(ctx, b, 3, dtype, {}); });
}

/// What a scatter starts from is made for it, so that every element of the result has to be written in any case.
bool made_here(const Graph& g, ValueId v) {
  const Node* node = g.producer(v);
  while (node != nullptr && node->op->kind == OpKind::kView) {
    const auto* base = std::get_if<TensorArg>(&node->args[0]);
    node = base == nullptr ? nullptr : g.producer(base->value);
  }
  return node != nullptr && node->op->kind == OpKind::kCreation;
}

/// A scatter with one position for each row along dim, onto what is made here, is a value for each element, which fuses with
/// its surroundings: no zeros in memory, no atomics. Nothing else is written out.
Values decompose_scatter(GraphBuilder& b, std::span<const Arg> arguments, const char* one_place) {
  const Args args(b, arguments);
  const TensorType self = args.type(0), index = args.type(2);
  if (self.dim() == 0 || index.dim() != self.dim() || !made_here(b.graph(), args.tensor(0))) return {};
  std::vector<Expr> rows = self.sizes;
  rows[static_cast<size_t>(args.dim(1, self.dim()))] = b.ctx().constant(1);
  if (index.sizes != rows) return {};
  ValueId source;
  if (args.is_tensor(3) && !args.type(3).is_wrapped_number) {
    source = args.tensor(3);
    if (args.type(3).sizes != rows) return {};
  } else {
    source = b.expand(b.op("full", {SymInts{{}}, arguments[3], self.dtype, NoneArg{}, self.device}), rows);
  }
  return {b.op(one_place, {arguments[0], arguments[1], arguments[2], TensorArg{source}})};
}

/// Each element takes part in its row's write if it stands at the row's position.
void lower_one_place(LowerContext& ctx, StoreMode mode) {
  const TensorType self = ctx.operand(0);
  const auto dim = static_cast<size_t>(Args(ctx).dim(1, self.dim()));
  const DType dtype = compute_dtype(ctx.result().dtype);
  ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> out) {
    std::vector<Expr> row(out.begin(), out.end());
    row[dim] = b.ctx().constant(0);
    const Expr place = lookup(b, b.load(1, row), self.sizes[dim], false);
    const Calc integer{b, DType::kInt64}, calc{b, dtype};
    const ScalarId here =
        integer.cmp(ScalarOp::kEq, b.index_value(place, DType::kInt64), b.index_value(out[dim], DType::kInt64));
    const ScalarId before = b.cast(b.load(0, out), dtype), value = b.cast(b.load(2, row), dtype);
    return calc.select(here, mode == StoreMode::kAdd ? calc.add(before, value) : value, before);
  });
}

StoreMode store_mode(const std::string& reduce) {
  if (reduce == "add" || reduce == "sum" || reduce == "mean") return StoreMode::kAdd;
  if (reduce == "multiply" || reduce == "prod") return StoreMode::kMul;
  if (reduce == "amax") return StoreMode::kMax;
  if (reduce == "amin") return StoreMode::kMin;
  throw InvalidArgument(str_cat("unknown reduce argument ", reduce));
}

/// The value that leaves the other operand as it is.
Scalar reduction_identity(const std::string& reduce, DType dtype) {
  if (reduce == "prod") return Scalar(int64_t{1});
  if (reduce != "amax" && reduce != "amin") return Scalar(int64_t{0});
  const bool top = reduce == "amin";
  if (is_floating(dtype))
    return Scalar(top ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity());
  const int bits = 8 * dtype_size(dtype);
  if (!is_signed(dtype)) return Scalar(top ? (bits == 64 ? int64_t{-1} : (int64_t{1} << bits) - 1) : int64_t{0});
  const int64_t largest = bits == 64 ? INT64_MAX : (int64_t{1} << (bits - 1)) - 1;
  return Scalar(top ? largest : -largest - 1);
}

/// Made of scatter_reduce_to_self, where self's own value is one of those reduced.
Values decompose_scatter_reduce(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const std::string reduce = args.str(4);
  const bool include_self = args.flag(5);
  store_mode(reduce);
  const TensorType self = args.type(0);
  if (self.dtype == DType::kBool || is_complex(self.dtype)) throw Unsupported("scatter_reduce of this dtype");
  ValueId base = args.tensor(0);
  if (!include_self) {
    const Scalar identity = reduction_identity(reduce, self.dtype);
    base = b.op("scatter.value", {TensorArg{base}, arguments[1], arguments[2], identity});
  }
  const char* kind = reduce == "mean" ? "sum" : reduce.c_str();
  ValueId result =
      b.op("scatter_reduce_to_self", {TensorArg{base}, arguments[1], arguments[2], arguments[3], std::string(kind)});
  if (reduce == "mean") {
    const ValueId one = b.constant(1, self.dtype, self.device);
    const ValueId zero = b.constant(0, self.dtype, self.device);
    ValueId count = b.expand(include_self ? one : zero, self.sizes);
    count = b.op("scatter_add",
                 {TensorArg{count}, arguments[1], arguments[2], TensorArg{b.expand(one, args.type(2).sizes)}});
    if (!include_self) count = b.op("clamp_min", {TensorArg{count}, Scalar(int64_t{1})});
    result = is_floating(self.dtype) ? b.binary("div", result, count) : b.binary("floor_divide", result, count);
  }
  return {result};
}

}  // namespace

void register_gather_scatter(OpRegistry& r) {
  const auto kind = OpKind::kIndexing;
  add_checking(r, make_op({"gather", kind, "(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor",
                           "torch.gather torch.Tensor.gather"},
                          gather_meta, nullptr, lower_gather));
  const char* names = "torch.scatter torch.Tensor.scatter";
  const char* inplace = "torch.Tensor.scatter_";
  const auto set = [](LowerContext& c) { lower_scatter(c, StoreMode::kSet); };
  const auto by_rows = [](const char* one_place) {
    return [one_place](GraphBuilder& b, std::span<const Arg> args) { return decompose_scatter(b, args, one_place); };
  };
  const auto sums_in_wide = [](const char* op) {
    return [op](GraphBuilder& b, std::span<const Arg> args) {
      return store_mode(Args(b, args).str(4)) == StoreMode::kAdd ? add_in_wide(b, op, args, 3) : Values();
    };
  };
  const auto by_name = [](LowerContext& c) { lower_scatter(c, store_mode(Args(c).str(4))); };
  add_checking(r, make_op({"scatter.reduce", kind,
                           "(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor", names, inplace},
                          scatter_meta, sums_in_wide("scatter.reduce"), by_name));
  add_checking(r,
               make_op({"scatter.value_reduce", kind,
                        "(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor", names, inplace},
                       scatter_meta, nullptr, by_name));
  add_checking(
      r, make_op({"scatter.src", kind, "(Tensor self, int dim, Tensor index, Tensor src) -> Tensor", names, inplace},
                 scatter_meta, by_rows("set_one_place"), set));
  add_checking(r, make_op({"scatter.value", kind, "(Tensor self, int dim, Tensor index, Scalar value) -> Tensor", names,
                           inplace},
                          scatter_meta, by_rows("set_one_place"), set));
  add_checking(r, make_op(
                      {"scatter_add", kind, "(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
                       "torch.scatter_add torch.Tensor.scatter_add", "torch.Tensor.scatter_add_"},
                      scatter_meta,
                      [](GraphBuilder& b, std::span<const Arg> args) {
                        const Values values = decompose_scatter(b, args, "add_one_place");
                        return values.empty() ? add_in_wide(b, "scatter_add", args, 3) : values;
                      },
                      [](LowerContext& c) { lower_scatter(c, StoreMode::kAdd); }));
  const char* rows = "(Tensor self, int dim, Tensor index, Tensor src) -> Tensor";
  r.add(make_op({"set_one_place", kind, rows, ""}, scatter_meta, nullptr,
                [](LowerContext& c) { lower_one_place(c, StoreMode::kSet); }));
  r.add(make_op({"add_one_place", kind, rows, ""}, scatter_meta, nullptr,
                [](LowerContext& c) { lower_one_place(c, StoreMode::kAdd); }));
  r.add(make_op(
      {"scatter_reduce_to_self", kind, "(Tensor self, int dim, Tensor index, Tensor src, str reduce) -> Tensor", ""},
      scatter_meta, sums_in_wide("scatter_reduce_to_self"), by_name));
  OpDef reduce = make_op({"scatter_reduce", OpKind::kHost,
                          "(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> "
                          "Tensor",
                          "torch.scatter_reduce torch.Tensor.scatter_reduce", "torch.Tensor.scatter_reduce_"},
                         scatter_meta, decompose_scatter_reduce);
  reduce.host_overload = "two";
  add_checking(r, std::move(reduce));
  r.take_values({"scatter.value"});
}

}  // namespace tatara
