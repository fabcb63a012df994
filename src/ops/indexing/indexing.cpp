// Reading and writing at indices held in tensors. An index outside of its dimension raises eager's IndexError from the kernel.
#include <algorithm>
#include <limits>

#include "ops/core/pointwise_util.h"
#include "ops/indexing/indexing_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;
using loops::StoreMode;

bool is_mask(DType dtype) { return dtype == DType::kBool || dtype == DType::kUInt8; }

void require_index(const MetaContext& m, const TensorType& index) {
  if (index.dtype != DType::kInt64 && index.dtype != DType::kInt32) {
    throw InvalidArgument(str_cat(m.op().name, "(): Expected dtype int32/int64 for index"));
  }
}

// ---- index, index_put ------------------------------------------------------------------------------------------------

/// How index tensors map onto the dimensions of self and of the result.
struct AdvancedIndex {
  std::vector<int> operand_of_dim;  // per dimension of self: number of its index among the given ones, or -1
  std::vector<Expr> index_sizes;    // broadcast shape of the indices
  int64_t at = 0;                   // where that shape stands in the result
  std::vector<Expr> sizes;          // of the result
};

AdvancedIndex analyse_index(ExprContext& ctx, const TensorType& self, std::span<const TensorType* const> indices) {
  AdvancedIndex a;
  if (static_cast<int64_t>(indices.size()) > self.dim()) {
    throw InvalidArgument(str_cat("too many indices for tensor of dimension ", self.dim()));
  }
  a.operand_of_dim.assign(self.sizes.size(), -1);
  int count = 0;
  int64_t first = -1;
  int64_t last = -1;
  for (size_t d = 0; d < indices.size(); ++d) {
    const TensorType* index = indices[d];
    if (index == nullptr) continue;
    if (is_mask(index->dtype)) throw Unsupported("an index that is a mask: the size of the result depends on data");
    if (!is_integral(index->dtype))
      throw InvalidArgument("tensors used as indices must be long, int, byte or bool tensors");
    a.operand_of_dim[d] = count++;
    if (first < 0) first = static_cast<int64_t>(d);
    last = static_cast<int64_t>(d);
    // Right-aligned broadcast.
    if (index->sizes.size() > a.index_sizes.size()) {
      a.index_sizes.insert(a.index_sizes.begin(), index->sizes.size() - a.index_sizes.size(), ctx.constant(1));
    }
    const size_t skip = a.index_sizes.size() - index->sizes.size();
    for (size_t i = 0; i < index->sizes.size(); ++i) {
      Expr& size = a.index_sizes[skip + i];
      if (is_one(ctx, size)) {
        size = index->sizes[i];
      } else if (!is_one(ctx, index->sizes[i]) && !same_size(ctx, size, index->sizes[i])) {
        throw InvalidArgument("shape mismatch: indexing tensors could not be broadcast together");
      }
    }
  }
  if (count == 0) throw Unsupported("index without tensors");
  const bool adjacent = last - first + 1 == count;
  a.at = adjacent ? first : 0;
  for (size_t d = 0; d < self.sizes.size(); ++d) {
    if (a.operand_of_dim[d] < 0) a.sizes.push_back(self.sizes[d]);
  }
  a.sizes.insert(a.sizes.begin() + a.at, a.index_sizes.begin(), a.index_sizes.end());
  return a;
}

std::vector<const TensorType*> index_types(const Graph& graph, const Arg& arg) {
  std::vector<const TensorType*> types;
  for (ValueId id : std::get<TensorList>(arg).values) types.push_back(id == kNoValue ? nullptr : &graph.type(id));
  return types;
}

/// Strides by eager's iterator over self (restrided, zero over the indexed part) and the index tensors.
std::vector<Expr> index_strides(MetaContext& m, const TensorType& self, const AdvancedIndex& a,
                                std::span<const TensorType* const> indices) {
  const Expr zero = m.ctx().constant(0);
  const size_t rank = a.sizes.size();
  const size_t span = a.index_sizes.size();
  const auto at = static_cast<size_t>(a.at);
  TensorType source = self;
  source.sizes = a.sizes;
  source.strides.assign(rank, zero);
  size_t to = 0;
  for (size_t d = 0; d < self.sizes.size(); ++d) {
    if (a.operand_of_dim[d] >= 0) continue;
    if (to == at) to += span;
    source.strides[to++] = self.strides[d];
  }
  std::vector<TensorType> parts{source};
  for (const TensorType* index : indices) {
    if (index == nullptr) continue;
    TensorType part = *index;
    part.sizes = a.sizes;
    part.strides.assign(rank, zero);
    const size_t skip = at + span - index->sizes.size();
    for (size_t i = 0; i < index->sizes.size(); ++i) {
      if (!index->sizes[i].is_const(1)) part.strides[skip + i] = index->strides[i];
    }
    parts.push_back(std::move(part));
  }
  std::vector<const TensorType*> operands;
  for (const TensorType& part : parts) operands.push_back(&part);
  return m.iterator_strides(a.sizes, operands);
}

std::vector<TensorType> index_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  const auto indices = m.tensor_list(1);
  const AdvancedIndex a = analyse_index(m.ctx(), self, indices);
  TensorType type = contiguous_type(m.ctx(), self.dtype, self.device, a.sizes);
  type.strides = index_strides(m, self, a, indices);
  return {type};
}

/// Indices into self for a position in the result.
std::vector<Expr> source_position(LoopBuilder& b, const AdvancedIndex& a, const TensorType& self,
                                  const std::vector<std::vector<Expr>>& index_shapes, std::span<const Expr> out) {
  const auto at = static_cast<size_t>(a.at);
  const size_t span = a.index_sizes.size();
  const std::span<const Expr> part = out.subspan(at, span);
  std::vector<Expr> result(self.sizes.size());
  size_t from = 0;
  for (size_t d = 0; d < self.sizes.size(); ++d) {
    const int k = a.operand_of_dim[d];
    if (k < 0) {
      if (from == at) from += span;
      result[d] = out[from++];
      continue;
    }
    const auto where = broadcast_indices(b.ctx(), part, index_shapes[static_cast<size_t>(k)]);
    result[d] = lookup(b, b.load(1 + k, where), self.sizes[d], true);
  }
  return result;
}

std::vector<std::vector<Expr>> shapes_of(std::span<const TensorType* const> indices) {
  std::vector<std::vector<Expr>> shapes;
  for (const TensorType* index : indices) {
    if (index != nullptr) shapes.push_back(index->sizes);
  }
  return shapes;
}

void lower_index(LowerContext& ctx) {
  const auto indices = index_types(ctx.graph(), ctx.node().args[1]);
  const TensorType self = ctx.operand(0);
  const AdvancedIndex a = analyse_index(ctx.ctx(), self, indices);
  ctx.pointwise(0, [=, shapes = shapes_of(indices)](LoopBuilder& b, std::span<const Expr> out) {
    return b.load(0, source_position(b, a, self, shapes, out));
  });
}

std::vector<TensorType> like(MetaContext& m, const TensorType& self) {
  TensorType type = self;
  const TensorType* operands[] = {&self};
  type.strides = m.iterator_strides(self.sizes, operands);
  type.is_wrapped_number = false;
  return {type};
}

/// The one mask of index_put(self, [None..., mask], value) with a value of one element: a plain selection.
std::optional<size_t> single_mask(GraphBuilder& b, const Args& args) {
  const auto* list = std::get_if<TensorList>(&args[1]);
  if (list == nullptr) return std::nullopt;
  std::optional<size_t> at;
  for (size_t i = 0; i < list->values.size(); ++i) {
    if (list->values[i] == kNoValue) continue;
    if (at || b.type(list->values[i]).dtype != DType::kBool) return std::nullopt;
    at = i;
  }
  return at;
}

Values decompose_index_put(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const auto at = single_mask(b, args);
  if (!at) return args.flag(3) ? add_in_wide(b, "index_put", arguments, 2) : Values();
  ExprContext& ctx = b.ctx();
  const ValueId self = args.tensor(0);
  ValueId value = args.tensor(2);
  if (args.flag(3) || !is_one(ctx, b.type(value).numel(ctx))) {
    throw Unsupported("a masked write of several values: where they go depends on data");
  }
  ValueId mask = std::get<TensorList>(args[1]).values[*at];
  const int64_t rank = b.type(self).dim();
  const auto mask_rank = b.type(mask).dim();
  if (static_cast<int64_t>(*at) + mask_rank > rank) throw InvalidArgument("too many indices for the tensor");
  for (int64_t i = 0; i < mask_rank; ++i) {
    if (!same_size(ctx, b.type(mask).sizes[static_cast<size_t>(i)], b.type(self).sizes[*at + static_cast<size_t>(i)])) {
      throw InvalidArgument("The shape of the mask does not match the shape of the indexed tensor");
    }
  }
  while (static_cast<int64_t>(*at) + b.type(mask).dim() < rank) mask = b.unsqueeze(mask, b.type(mask).dim());
  if (b.type(value).dim() > 0) value = b.reshape(value, {});
  return {b.where(mask, b.cast(value, b.type(self).dtype), self)};
}

std::vector<TensorType> index_put_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  bool masked = false;
  for (const TensorType* index : m.tensor_list(1)) masked = masked || (index != nullptr && is_mask(index->dtype));
  if (self.dtype != m.tensor(2).dtype) {
    throw InvalidArgument("Index put requires the source and destination dtypes match");
  }
  if (masked) {
    int given = 0;
    for (const TensorType* index : m.tensor_list(1)) given += index != nullptr ? 1 : 0;
    if (given != 1 || m.boolean(3) || !is_one(m.ctx(), m.tensor(2).numel(m.ctx()))) {
      throw Unsupported("a masked write of several values: where they go depends on data");
    }
    return like(m, self);
  }
  const AdvancedIndex a = analyse_index(m.ctx(), self, m.tensor_list(1));
  const std::vector<Expr>* shapes[] = {&m.tensor(2).sizes, &a.sizes};
  if (!same_sizes(m.ctx(), m.broadcast(shapes), a.sizes)) {
    throw InvalidArgument("shape mismatch: value tensor cannot be broadcast to indexing result");
  }
  return like(m, self);
}

void lower_index_put(LowerContext& ctx) {
  const auto indices = index_types(ctx.graph(), ctx.node().args[1]);
  const TensorType self = ctx.operand(0);
  const AdvancedIndex a = analyse_index(ctx.ctx(), self, indices);
  const auto shapes = shapes_of(indices);
  const int value_operand = 1 + static_cast<int>(shapes.size());
  ScatterDef def;
  def.domain = a.sizes;
  def.destination = [=](LoopBuilder& b, std::span<const Expr> iter) {
    return source_position(b, a, self, shapes, iter);
  };
  def.value = [=, sizes = ctx.operand(value_operand).sizes](LoopBuilder& b, std::span<const Expr> iter) {
    return b.load(value_operand, broadcast_indices(b.ctx(), iter, sizes));
  };
  def.mode = Args(ctx).flag(3) ? StoreMode::kAdd : StoreMode::kSet;
  ctx.scatter(std::move(def));
}

// ---- One index vector along a dimension -------------------------------------------------------------------------------

Expr index_length(ExprContext& ctx, const TensorType& index) {
  return index.dim() == 0 ? ctx.constant(1) : index.sizes[0];
}

ScalarId load_vector(LoopBuilder& b, int operand, int64_t rank, Expr position) {
  const Expr at[] = {position};
  return b.load(operand, std::span<const Expr>(at, rank == 0 ? 0 : 1));
}

std::vector<TensorType> index_select_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  const TensorType& index = m.tensor(2);
  require_index(m, index);
  if (index.dim() > 1) throw InvalidArgument("index_select(): Index is supposed to be a vector");
  const int64_t dim = m.dim(1, self.dim());
  std::vector<Expr> sizes = self.sizes;
  if (!sizes.empty()) sizes[static_cast<size_t>(dim)] = index_length(m.ctx(), index);
  return {contiguous_type(m.ctx(), self.dtype, self.device, sizes)};
}

void lower_index_select(LowerContext& ctx) {
  const TensorType self = ctx.operand(0);
  const int64_t rank = ctx.operand(1).dim();
  const auto dim = static_cast<size_t>(Args(ctx).dim(1, self.dim()));
  ctx.pointwise(0, [=](LoopBuilder& b, std::span<const Expr> out) {
    std::vector<Expr> at(out.begin(), out.end());
    if (!at.empty()) at[dim] = lookup(b, load_vector(b, 1, rank, out[dim]), self.sizes[dim], false);
    return b.load(0, at);
  });
}

/// index_add and index_copy: (self, dim, index, source, ...).
MetaFn index_write_meta(bool keep_layout) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    const TensorType& self = m.tensor(0);
    const TensorType& index = m.tensor(2);
    require_index(m, index);
    const auto dim = static_cast<size_t>(m.dim(1, self.dim()));
    if (index.dim() > 1) throw InvalidArgument("Index is supposed to be a vector");
    if (self.dim() == 0 && !is_one(m.ctx(), index_length(m.ctx(), index))) {
      throw Unsupported("an indexed write of several values to a tensor without dimensions");
    }
    if (m.is_tensor(3) && !keep_layout && self.dim() == 0) {
      if (m.tensor(3).dtype != self.dtype) throw InvalidArgument("self and source expected to have the same dtype");
      if (!is_one(m.ctx(), product(m.ctx(), m.tensor(3).sizes))) throw InvalidArgument("source has the wrong shape");
    } else if (m.is_tensor(3) && !keep_layout) {
      const TensorType& source = m.tensor(3);
      if (source.dtype != self.dtype) throw InvalidArgument("self and source expected to have the same dtype");
      std::vector<Expr> expected = self.sizes;
      expected[dim] = index_length(m.ctx(), index);
      if (source.dim() != self.dim() || !same_sizes(m.ctx(), expected, source.sizes)) {
        throw InvalidArgument("source has the wrong shape");
      }
    }
    if (keep_layout) return like(m, self);
    return {contiguous_type(m.ctx(), self.dtype, self.device, self.sizes)};
  };
}

/// A tensor without dimensions is written as a vector of one.
DecomposeFn scalar_as_vector(const char* name) {
  return [name](GraphBuilder& b, std::span<const Arg> arguments) -> std::vector<ValueId> {
    const Args args(b, arguments);
    if (args.rank(0) != 0) return {};
    const std::vector<Expr> one{b.ctx().constant(1)};
    std::vector<Arg> given(arguments.begin(), arguments.end());
    given[0] = TensorArg{b.reshape(args.tensor(0), one)};
    if (std::string_view(name) != "index_fill.int_Tensor" && args.is_tensor(3)) {
      given[3] = TensorArg{b.reshape(args.tensor(3), one)};
    }
    return {b.reshape(b.op(name, std::move(given)), {})};
  };
}

/// (mode)= value(position) at self[..., index[i], ...] over the shape of self with `index` in place of dim.
void lower_index_write(LowerContext& ctx, StoreMode mode, ElementFn value) {
  const TensorType self = ctx.operand(0);
  const TensorType index = ctx.operand(1);
  const auto dim = static_cast<size_t>(Args(ctx).dim(1, self.dim()));
  ScatterDef def;
  def.domain = self.sizes;
  def.domain[dim] = index_length(ctx.ctx(), index);
  def.destination = [=, rank = index.dim()](LoopBuilder& b, std::span<const Expr> iter) {
    std::vector<Expr> at(iter.begin(), iter.end());
    at[dim] = lookup(b, load_vector(b, 1, rank, iter[dim]), self.sizes[dim], false);
    return at;
  };
  def.value = std::move(value);
  def.mode = mode;
  ctx.scatter(std::move(def));
}

void lower_index_add(LowerContext& ctx) {
  const auto* const alpha = std::get_if<Scalar>(&ctx.node().args[4]);
  const auto* const whole = alpha != nullptr ? std::get_if<int64_t>(alpha) : nullptr;
  const bool is_one = whole != nullptr && *whole == 1;
  const DType wide = compute_dtype(ctx.result().dtype);
  lower_index_write(ctx, StoreMode::kAdd, [=, &ctx](LoopBuilder& b, std::span<const Expr> iter) {
    const ScalarId x = b.load(2, iter);
    return is_one ? x : Calc{b, wide}.mul(x, operand_at(ctx, b, 4, wide, {}));
  });
}

void lower_index_fill(LowerContext& ctx) {
  const bool varies = Args(ctx).is_tensor(3);
  const DType dtype = varies ? compute_dtype(ctx.result().dtype) : ctx.result().dtype;
  lower_index_write(ctx, StoreMode::kSet,
                    [=, &ctx](LoopBuilder& b, std::span<const Expr>) { return operand_at(ctx, b, 3, dtype, {}); });
}

// ---- take, embedding, masked_fill -------------------------------------------------------------------------------------

std::vector<TensorType> take_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  if (m.tensor(1).dtype != DType::kInt64) throw InvalidArgument("take(): Expected a long tensor for index");
  return {contiguous_type(m.ctx(), self.dtype, self.device, m.tensor(1).sizes)};
}

void lower_take(LowerContext& ctx) {
  const TensorType self = ctx.operand(0);
  ctx.pointwise(0, [=, count = self.numel(ctx.ctx())](LoopBuilder& b, std::span<const Expr> out) {
    ExprContext& ec = b.ctx();
    Expr flat = lookup(b, b.load(1, out), count, true);
    std::vector<Expr> at(self.sizes.size());
    for (size_t d = at.size(); d-- > 0;) {
      if (self.sizes[d].is_const() && self.sizes[d].const_value() == 0) {  // nothing to take, from nothing
        at[d] = ec.constant(0);
        continue;
      }
      at[d] = d == 0 ? flat : ec.simplify(ec.mod(flat, self.sizes[d]));
      if (d > 0) flat = ec.simplify(ec.floordiv(flat, self.sizes[d]));
    }
    return b.load(0, at);
  });
}

Values decompose_take_along_dim(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  ExprContext& ctx = b.ctx();
  ValueId self = args.tensor(0);
  ValueId index = args.tensor(1);
  if (args.none(2)) {
    self = b.reshape(self, {b.type(self).numel(ctx)});
    index = b.reshape(index, {b.type(index).numel(ctx)});
    return {b.op("gather", {TensorArg{self}, int_arg(0), TensorArg{index}})};
  }
  const TensorType ts = b.type(self);
  const TensorType ti = b.type(index);
  if (ts.dim() != ti.dim())
    throw InvalidArgument("torch.take_along_dim(): input and indices should have the same number of dimensions");
  const int64_t dim = args.real_dim(2, ts.dim());
  std::vector<Expr> self_sizes = ts.sizes;
  std::vector<Expr> index_sizes = ti.sizes;
  for (size_t d = 0; d < self_sizes.size(); ++d) {
    if (static_cast<int64_t>(d) == dim) continue;
    const Expr size = is_one(ctx, ts.sizes[d]) ? ti.sizes[d] : ts.sizes[d];
    self_sizes[d] = size;
    index_sizes[d] = size;
  }
  // Negative indices count from the end here.
  const Expr size = ts.sizes[static_cast<size_t>(dim)];
  const ValueId from_end = b.binary("add", index, std::get<Scalar>(expr_arg(size)));
  index = b.where(b.binary("lt", index, Scalar(int64_t{0})), from_end, index);
  return {
      b.op("gather", {TensorArg{b.expand(self, self_sizes)}, int_arg(dim), TensorArg{b.expand(index, index_sizes)}})};
}

std::vector<TensorType> embedding_meta(MetaContext& m) {
  const TensorType& weight = m.tensor(0);
  const TensorType& index = m.tensor(1);
  if (weight.dim() != 2) throw InvalidArgument("'weight' must be 2-D");
  require_index(m, index);
  std::vector<Expr> sizes = index.sizes;
  sizes.push_back(weight.sizes[1]);
  return {contiguous_type(m.ctx(), weight.dtype, weight.device, sizes)};
}

void lower_embedding(LowerContext& ctx) {
  ctx.pointwise(0, [rows = ctx.operand(0).sizes[0]](LoopBuilder& b, std::span<const Expr> out) {
    const Expr at[] = {lookup(b, b.load(1, out.first(out.size() - 1)), rows, false), out.back()};
    return b.load(0, at);
  });
}

std::vector<TensorType> masked_fill_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  const TensorType& mask = m.tensor(1);
  if (mask.dtype != DType::kBool) throw InvalidArgument("masked_fill_ only supports boolean masks");
  if (m.is_tensor(2)) {
    if (m.tensor(2).dim() != 0) throw InvalidArgument("masked_fill_ only supports a 0-dimensional value tensor");
    if (is_complex(m.tensor(2).dtype) && !is_complex(self.dtype)) throw InvalidArgument("value cannot be converted");
  } else if (std::holds_alternative<std::complex<double>>(m.scalar(2)) && !is_complex(self.dtype)) {
    throw InvalidArgument("value cannot be converted to a real type without overflow");
  }
  const std::vector<Expr>* shapes[] = {&self.sizes, &mask.sizes};
  return {contiguous_type(m.ctx(), self.dtype, self.device, m.broadcast(shapes))};
}

void lower_masked_fill(LowerContext& ctx) {
  const DType dtype = compute_dtype(ctx.result().dtype);
  ctx.pointwise(0, [=, &ctx, self = ctx.operand(0).sizes, mask = ctx.operand(1).sizes](LoopBuilder& b,
                                                                                       std::span<const Expr> out) {
    const ScalarId chosen = b.load(1, broadcast_indices(b.ctx(), out, mask));
    const ScalarId x = b.load(0, broadcast_indices(b.ctx(), out, self));
    return Calc{b, dtype}.select(chosen, operand_at(ctx, b, 2, dtype, {}), x);
  });
}

Values decompose_one_hot(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const ValueId self = args.tensor(0);
  const int64_t classes = args.integer(1);
  if (b.type(self).dtype != DType::kInt64) throw InvalidArgument("one_hot is only applicable to index tensor");
  if (classes <= 0) throw Unsupported("one_hot without a number of classes: the size depends on data");
  std::vector<Expr> sizes = b.type(self).sizes;
  sizes.push_back(b.ctx().constant(classes));
  const ValueId base = b.expand(b.constant(0, DType::kInt64, b.type(self).device), sizes);
  const int64_t rank = b.type(self).dim();
  return {
      b.op("scatter.value", {TensorArg{base}, int_arg(rank), TensorArg{b.unsqueeze(self, rank)}, Scalar(int64_t{1})})};
}

MetaFn refuse(const char* reason) {
  return [reason](MetaContext&) -> std::vector<TensorType> { throw Unsupported(reason); };
}

}  // namespace

void register_indexing(OpRegistry& r) {
  const auto kind = OpKind::kIndexing;
  add_checking(r, make_op({"index", kind, "(Tensor self, Tensor?[] indices) -> Tensor",
                           "torch.ops.aten.index torch.ops.aten.index.Tensor"},
                          index_meta, nullptr, lower_index));
  add_checking(
      r, make_op({"index_put", kind, "(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
                  "torch.index_put torch.Tensor.index_put", "torch.index_put_ torch.Tensor.index_put_"},
                 index_put_meta, decompose_index_put, lower_index_put));
  add_checking(r, make_op({"index_select", kind, "(Tensor self, int dim, Tensor index) -> Tensor",
                           "torch.index_select torch.Tensor.index_select"},
                          index_select_meta, nullptr, lower_index_select));
  add_checking(
      r, make_op(
             {"index_add", kind, "(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
              "torch.index_add torch.Tensor.index_add", "torch.Tensor.index_add_"},
             index_write_meta(false),
             [](GraphBuilder& b, std::span<const Arg> args) {
               const Values vector = scalar_as_vector("index_add")(b, args);
               return vector.empty() ? add_in_wide(b, "index_add", args, 3) : vector;
             },
             lower_index_add));
  add_checking(r, make_op({"index_copy", kind, "(Tensor self, int dim, Tensor index, Tensor source) -> Tensor",
                           "torch.index_copy torch.Tensor.index_copy", "torch.Tensor.index_copy_"},
                          index_write_meta(false), scalar_as_vector("index_copy"),
                          [](LowerContext& c) { lower_index_write(c, StoreMode::kSet, operand_value(2)); }));
  const char* fill_names = "torch.index_fill torch.Tensor.index_fill";
  add_checking(r,
               make_op({"index_fill.int_Tensor", kind, "(Tensor self, int dim, Tensor index, Tensor value) -> Tensor",
                        fill_names, "torch.Tensor.index_fill_"},
                       index_write_meta(true), scalar_as_vector("index_fill.int_Tensor"), lower_index_fill));
  add_checking(r, make_op({"index_fill", kind, "(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
                           fill_names, "torch.Tensor.index_fill_"},
                          index_write_meta(true), scalar_as_vector("index_fill"), lower_index_fill));
  add_checking(r, make_op({"take", kind, "(Tensor self, Tensor index) -> Tensor", "torch.take torch.Tensor.take"},
                          take_meta, nullptr, lower_take));
  add_checking(r,
               make_op({"take_along_dim", OpKind::kComposite, "(Tensor self, Tensor indices, int? dim=None) -> Tensor",
                        "torch.take_along_dim torch.Tensor.take_along_dim"},
                       nullptr, decompose_take_along_dim));
  add_checking(r, make_op({"embedding", kind,
                           "(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, "
                           "bool sparse=False) -> Tensor",
                           "torch.embedding"},
                          embedding_meta, nullptr, lower_embedding));
  const char* fill = "torch.masked_fill torch.Tensor.masked_fill";
  r.add(make_op({"masked_fill.Tensor", OpKind::kPointwise, "(Tensor self, Tensor mask, Tensor value) -> Tensor", fill,
                 "torch.Tensor.masked_fill_"},
                masked_fill_meta, nullptr, lower_masked_fill));
  r.add(make_op({"masked_fill", OpKind::kPointwise, "(Tensor self, Tensor mask, Scalar value) -> Tensor", fill,
                 "torch.Tensor.masked_fill_"},
                masked_fill_meta, nullptr, lower_masked_fill));
  add_checking(
      r, make_op({"one_hot", OpKind::kComposite, "(Tensor self, int num_classes=-1) -> Tensor", "torch._C._nn.one_hot"},
                 nullptr, decompose_one_hot));
  const char* data = "the size of the result depends on data";
  r.add(make_op({"nonzero", OpKind::kHost, "(Tensor self, *, bool as_tuple=False) -> Tensor",
                 "torch.nonzero torch.Tensor.nonzero torch.argwhere torch.Tensor.argwhere"},
                refuse(data)));
  r.add(make_op({"masked_select", OpKind::kHost, "(Tensor self, Tensor mask) -> Tensor",
                 "torch.masked_select torch.Tensor.masked_select"},
                refuse(data)));
  r.take_values({"index_add", "index_fill", "masked_fill"});
}

}  // namespace tatara
