// Batching of operators that read and write at given places: the batch becomes a further index.
#include <algorithm>

#include "ops/rules/batching_rule.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

/// Numbers 0, 1, ... of the examples, with `behind` ones behind.
ValueId numbers(const BatchContext& c, int64_t behind, Device device) {
  GraphBuilder& b = c.builder();
  const ValueId all = b.op(
      "arange.step", {Scalar(int64_t{0}), expr_arg(c.size()), Scalar(int64_t{1}), DType::kInt64, NoneArg{}, device});
  std::vector<Expr> sizes{c.size()};
  for (int64_t i = 0; i < behind; ++i) sizes.push_back(c.ctx().constant(1));
  return b.reshape(all, sizes);
}

/// What the indices of index() and index_put() do to the dimensions of one example.
struct IndexPlan {
  std::vector<ValueId> indices;  // of one example; kNoValue: the whole dimension
  int64_t index_rank = 0;        // dimensions that the indices broadcast to
  int64_t place = 0;             // where these stand in the result of one example
  bool batched = false;
};

IndexPlan plan_of(const BatchContext& c, const std::vector<ValueId>& indices, const GraphBuilder& example) {
  IndexPlan plan{indices, 0, 0, false};
  int64_t first = -1, last = -1, count = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] == kNoValue) continue;
    const TensorType& type = example.type(indices[i]);
    if (type.dtype == DType::kBool || type.dtype == DType::kUInt8) throw Unsupported("vmap over a mask as an index");
    plan.index_rank = std::max(plan.index_rank, type.dim());
    plan.batched = plan.batched || c.of(indices[i]).batched;
    if (first < 0) first = static_cast<int64_t>(i);
    last = static_cast<int64_t>(i);
    ++count;
  }
  // Indices that do not stand beside each other go to the front.
  plan.place = count == last - first + 1 ? first : 0;
  return plan;
}

int64_t count_indices(const IndexPlan& plan) {
  return static_cast<int64_t>(plan.indices.size()) - std::count(plan.indices.begin(), plan.indices.end(), kNoValue);
}

/// The indices of all examples, led by their numbers. The result's dimensions: [batch, index dimensions, the others].
TensorList numbered(const BatchContext& c, const IndexPlan& plan, Device device) {
  TensorList list;
  list.values.push_back(numbers(c, plan.index_rank, device));
  for (const ValueId index : plan.indices) list.values.push_back(c.aligned(index, plan.index_rank));
  return list;
}

/// Whether the numbers of the examples, as an index in front, leave the other indices where they were.
bool beside_numbers(const IndexPlan& plan) {
  size_t i = 0;
  while (i < plan.indices.size() && plan.indices[i] != kNoValue) ++i;
  while (i < plan.indices.size() && plan.indices[i] == kNoValue) ++i;
  return i == plan.indices.size();
}

/// Dimensions [batch, before, indices, after] of a result from [batch, indices, before, after].
std::vector<int64_t> restored(const IndexPlan& plan, int64_t rank) {
  std::vector<int64_t> dims{0};
  const bool moved = !beside_numbers(plan);
  for (int64_t d = 0; d < rank; ++d) {
    int64_t from = d;
    if (moved && d < plan.place) from = d + plan.index_rank;
    if (moved && d >= plan.place && d < plan.place + plan.index_rank) from = d - plan.place;
    dims.push_back(from + 1);
  }
  return dims;
}

// (self, indices)
bool batch_index(BatchContext& c) {
  GraphBuilder& b = c.builder();
  const IndexPlan plan = plan_of(c, c.args().tensors(1), c.example());
  const int64_t rank = c.out_type().dim();
  if (!plan.batched) {
    TensorList list;
    list.values.push_back(kNoValue);
    for (const ValueId index : plan.indices) list.values.push_back(c.of(index).id);
    const ValueId result = b.op("index", {TensorArg{c.as_is(0)}, list});
    // Indices that stood beside each other still do, else they come before the batch.
    const bool front = plan.place == 0 && !(plan.indices.front() != kNoValue && beside_numbers(plan));
    c.give(0, front ? move_dim(b, result, plan.index_rank, 0) : result);
    return true;
  }
  if (!c.batched(0)) {
    // The batch is the first of the dimensions that the indices broadcast to.
    TensorList list;
    for (const ValueId index : plan.indices) list.values.push_back(c.aligned(index, plan.index_rank));
    c.give(0, move_dim(b, b.op("index", {TensorArg{c.as_is(0)}, list}), plan.place, 0));
    return true;
  }
  const ValueId self = c.as_is(0);
  const ValueId result = b.op("index", {TensorArg{self}, numbered(c, plan, b.type(self).device)});
  c.give(0, b.permute(result, restored(plan, rank)));
  return true;
}

// (self, indices, values, accumulate)
bool batch_index_put(BatchContext& c) {
  GraphBuilder& b = c.builder();
  const IndexPlan plan = plan_of(c, c.args().tensors(1), c.example());
  const ValueId self = c.all(0);
  // The values are those of a result of index(): in its shape first, then with the indices in front.
  const int64_t rank = c.args().rank(0) - count_indices(plan) + plan.index_rank;
  if (c.args().rank(2) > rank) return false;
  ValueId values = c.aligned(c.args().tensor(2), rank);
  if (!c.batched(2)) values = b.unsqueeze(values, 0);
  while (b.type(values).dim() < rank + 1) values = b.unsqueeze(values, 1);
  const std::vector<int64_t> back = restored(plan, rank);
  std::vector<int64_t> there(back.size());
  for (size_t d = 0; d < back.size(); ++d) there[static_cast<size_t>(back[d])] = static_cast<int64_t>(d);
  values = b.permute(values, there);
  c.give_call({TensorArg{self}, numbered(c, plan, b.type(self).device), TensorArg{values}, c.args()[3]});
  return true;
}

/// index_select with an index of its own for each example, which gather can do.
// (self, dim, index)
bool batch_index_select(BatchContext& c) {
  if (!c.batched(2)) return batch_by_dims(c, 2);
  c.give_parts([](GraphBuilder& b, std::span<const Arg> args) -> std::vector<ValueId> {
    const Args a(b, args);
    if (a.rank(0) == 0) return {b.reshape(a.tensor(0), {})};
    TensorList list;
    list.values.assign(static_cast<size_t>(a.dim(1, a.rank(0))), kNoValue);
    list.values.push_back(b.reshape(a.tensor(2), {b.type(a.tensor(2)).numel(b.ctx())}));
    return {b.op("index", {args[0], list})};
  });
  return true;
}

/// index_add, index_copy: (self, dim, index, source, ...), index_fill: (self, dim, index, value).
BatchFn indexed_write(bool accumulate) {
  return [accumulate](BatchContext& c) {
    const bool tensor = c.args().is_tensor(3);
    if (c.args().rank(0) == 0) return false;
    if (!c.batched(2) && (!tensor || c.args().rank(3) > 0)) return batch_by_dims(c, 2);
    const std::string name = c.node().op->name;
    c.give_parts([accumulate, name](GraphBuilder& b, std::span<const Arg> args) -> std::vector<ValueId> {
      const Args a(b, args);
      TensorList list;
      list.values.assign(static_cast<size_t>(a.dim(1, a.rank(0))), kNoValue);
      list.values.push_back(b.reshape(a.tensor(2), {b.type(a.tensor(2)).numel(b.ctx())}));
      ValueId source = kNoValue;
      if (a.is_tensor(3)) {
        source = b.cast(a.tensor(3), a.type(0).dtype);
      } else {
        source = b.op("full", {SymInts{}, a.scalar(3), a.type(0).dtype, NoneArg{}, a.type(0).device});
      }
      if (accumulate) source = b.op("mul", {TensorArg{source}, args[4]});
      return {b.op("index_put", {args[0], list, TensorArg{source}, bool_arg(accumulate)})};
    });
    return true;
  };
}

// (self, index): places in the flat tensor
bool batch_take(BatchContext& c) {
  c.give_parts([](GraphBuilder& b, std::span<const Arg> args) -> std::vector<ValueId> {
    const Args a(b, args);
    const ValueId flat = b.reshape(a.tensor(0), {a.type(0).numel(b.ctx())});
    return {b.op("index", {TensorArg{flat}, TensorList{{a.tensor(1)}}})};
  });
  return true;
}

// (weight, indices, padding_idx, scale_grad_by_freq, sparse)
bool batch_embedding(BatchContext& c) {
  if (!c.batched(0)) {
    c.give_call(c.mapped_args());
    return true;
  }
  if (c.args().flag(3)) return false;
  GraphBuilder& b = c.builder();
  // One table of all examples' rows; the padding row of each gets no gradient.
  const ValueId weight = c.all(0);
  const std::vector<Expr> sizes = b.type(weight).sizes;
  ValueId places = c.all(1);
  const DType dtype = b.type(places).dtype;
  const ValueId first =
      b.op("mul", {TensorArg{numbers(c, c.args().rank(1), b.type(weight).device)}, expr_arg(sizes[1])});
  const ValueId rows = b.binary("add", places, b.cast(first, dtype));
  const ValueId table = b.reshape(weight, {sizes[0] * sizes[1], sizes[2]});
  ValueId found = b.op("embedding", {TensorArg{table}, TensorArg{rows}});
  const Expr padding = c.args().expr(2);
  if (!padding.is_const(-1)) {
    ValueId is_padding = b.op("eq", {TensorArg{places}, expr_arg(padding)});
    is_padding = b.unsqueeze(is_padding, b.type(places).dim());
    found = b.where(is_padding, b.unary("detach", found), found);
  }
  c.give(0, found);
  return true;
}

}  // namespace

void register_batching_indexing(OpRegistry& r) {
  for (const char* name : {"gather", "scatter.src", "scatter.value", "scatter_add", "scatter.reduce",
                           "scatter.value_reduce", "scatter_reduce_to_self", "scatter_reduce"}) {
    r.amend(name).batch = [](BatchContext& c) { return batch_by_dims(c); };
  }
  r.amend("index").batch = batch_index;
  r.amend("index_put").batch = batch_index_put;
  r.amend("index_select").batch = batch_index_select;
  r.amend("index_add").batch = indexed_write(true);
  r.amend("index_copy").batch = indexed_write(false);
  r.amend("index_fill").batch = indexed_write(false);
  r.amend("index_fill.int_Tensor").batch = indexed_write(false);
  r.amend("take").batch = batch_take;
  r.amend("embedding").batch = batch_embedding;
}

}  // namespace tatara
