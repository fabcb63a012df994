#include "ops/rules/batching_rule.h"

#include <numeric>

#include "ops/rules/host_transform.h"
#include "support/error.h"

namespace tatara {

using namespace ops;

ValueId move_dim(GraphBuilder& b, ValueId x, int64_t from, int64_t to) {
  if (from == to) return x;
  std::vector<int64_t> dims(b.type(x).sizes.size());
  std::iota(dims.begin(), dims.end(), 0);
  dims.erase(dims.begin() + from);
  dims.insert(dims.begin() + to, from);
  return b.permute(x, dims);
}

std::vector<Expr> BatchContext::with_batch(std::vector<Expr> sizes) const {
  sizes.insert(sizes.begin(), size_);
  return sizes;
}

ValueId BatchContext::all_of(ValueId example) const {
  const BatchValue now = of(example);
  if (now.id == kNoValue || now.batched) return now.id;
  const ValueId one = builder_.unsqueeze(now.id, 0);
  return builder_.expand(one, with_batch(std::vector<Expr>(builder_.type(now.id).sizes)));
}

ValueId BatchContext::aligned(ValueId example, int64_t rank) const {
  const BatchValue now = of(example);
  if (!now.batched) return now.id;
  ValueId x = now.id;
  for (int64_t own = builder_.type(x).dim() - 1; own < rank; ++own) x = builder_.unsqueeze(x, 1);
  return x;
}

std::vector<Arg> BatchContext::mapped_args() const {
  return with_operands(node_.args, [this](ValueId v) { return of(v).id; });
}

std::vector<ValueId> BatchContext::operands() const {
  std::vector<ValueId> found;
  for_each_operand(node_, [&](ValueId v) { found.push_back(v); });
  return found;
}

void refuse_promotion(const BatchContext& c) {
  if (!is_integral(c.out_type().dtype)) return;
  for (const Arg& arg : c.node().args) {
    const auto* scalar = std::get_if<Scalar>(&arg);
    if (scalar == nullptr || !std::holds_alternative<double>(*scalar)) continue;
    throw Unsupported(str_cat(c.node().op->name, " of integers by floats, which the host's vmap promotes"));
  }
}

void BatchContext::give_all(const std::vector<ValueId>& values) {
  for (size_t i = 0; i < results_.size(); ++i) give(i, values[i]);
}

void BatchContext::give_call(std::vector<Arg> args) { give_all(builder_.call(*node_.op, std::move(args))); }

void BatchContext::give_parts(const DecomposeFn& parts) { results_ = parts_(parts); }

DType BatchContext::promoted_type(std::span<const size_t> args) const {
  return MetaContext(example_.graph(), *node_.op, node_.args, example_.default_dtype()).result_type(args);
}

// ---- Pointwise ---------------------------------------------------------------------------------------------------------

bool batch_pointwise(BatchContext& c) {
  GraphBuilder& b = c.builder();
  const std::string& name = c.node().op->name;
  int64_t rank = c.out_type().dim();
  // Conditions keep their own type; the others are promoted together.
  std::vector<size_t> tensors, promoted;
  for (size_t i = 0; i < c.args().size(); ++i) {
    if (std::holds_alternative<TensorList>(c.args()[i])) return false;
    if (!c.args().is_tensor(i)) continue;
    tensors.push_back(i);
    if (!(name == "where" && i == 0)) promoted.push_back(i);
    rank = std::max(rank, c.args().rank(i));
  }
  const bool promotes = promoted.size() > 1;
  std::vector<Arg> args = c.mapped_args();
  for (const size_t i : tensors) {
    ValueId x = c.aligned(c.args().tensor(i), rank);
    // An example without dimensions takes part in promotion as such; over all examples it has one, so it gets its type first.
    if (promotes && c.batched(i) && c.args().rank(i) == 0 && promoted.front() <= i) {
      const DType type = c.promoted_type(promoted);
      if (b.type(x).dtype != type) x = b.cast(x, type);
    }
    args[i] = TensorArg{x};
  }
  c.give_call(std::move(args));
  return true;
}

bool batch_into_self(BatchContext& c) {
  // The result is self's in shape and dtype, whatever the others are.
  GraphBuilder& b = c.builder();
  const std::string& name = c.node().op->name;
  const int64_t rank = c.args().rank(0);
  for (size_t i = 1; i < c.args().size(); ++i) {
    if (c.args().is_tensor(i) && c.args().rank(i) > rank) return false;
  }
  const ValueId self = c.all(0);
  const DType dtype = c.out_type().dtype;
  std::vector<Arg> args = c.mapped_args();
  args[0] = TensorArg{self};
  for (size_t i = 1; i < args.size(); ++i) {
    if (c.args().is_tensor(i)) args[i] = TensorArg{c.aligned(c.args().tensor(i), rank)};
  }
  if (name == "masked_fill.Tensor" && c.batched(2)) {
    c.give(0, b.where(std::get<TensorArg>(args[1]).value, b.cast(std::get<TensorArg>(args[2]).value, dtype), self));
  } else if (name == "fill" && c.batched(1)) {
    args[1] = TensorArg{b.expand(std::get<TensorArg>(args[1]).value, c.with_batch(c.out_type().sizes))};
    c.give(0, b.op("copy", {args[0], args[1]}));
  } else {
    c.give_call(std::move(args));
  }
  return true;
}

// ---- Dimensions ----------------------------------------------------------------------------------------------------------

namespace {

bool names_dims(const std::string& name) {
  return name == "dim" || name == "dims" || name == "dimension" || name == "dim0" || name == "dim1" || name == "dim2";
}

bool is_list(const ArgSpec& spec) { return spec.type == ArgType::kIntList || spec.type == ArgType::kOptionalIntList; }

/// The operand with a dimension behind the batch, where it needs one as the first operand does.
ValueId with_dims(const BatchContext& c, ValueId example, int64_t rank) {
  const ValueId x = c.all_of(example);
  const bool kept = rank > 0 && c.node().op->kind == OpKind::kPointwise;  // one element of a bigger tensor
  return x == kNoValue || kept || c.builder().type(x).dim() > 1 ? x : c.builder().unsqueeze(x, 1);
}

}  // namespace

bool batch_by_dims(BatchContext& c, int shared) {
  GraphBuilder& b = c.builder();
  const std::vector<ArgSpec>& specs = c.node().op->schema.args;
  std::vector<Arg> args = c.node().args;
  int64_t rank = 0;
  bool found = false, flat = false;
  for (size_t i = 0; i < args.size(); ++i) {
    if (auto* tensor = std::get_if<TensorArg>(&args[i])) {
      if (i == 0) rank = c.args().rank(0);
      tensor->value = shared == static_cast<int>(i) ? c.as_is(i) : with_dims(c, tensor->value, rank);
    } else if (auto* list = std::get_if<TensorList>(&args[i])) {
      for (ValueId& v : list->values) {
        // An empty tensor of one dimension stands for nothing, in lists of others.
        if (i == 0) rank = std::max(rank, b.type(c.of(v).id).dim() - (c.of(v).batched ? 1 : 0));
        v = with_dims(c, v, 0);
      }
    }
    if (!names_dims(specs[i].name)) continue;
    found = true;
    const bool none = std::holds_alternative<NoneArg>(args[i]);
    if (is_list(specs[i])) {
      std::vector<int64_t> dims = none ? std::vector<int64_t>{} : c.args().integers(i);
      if (dims.empty()) dims = c.args().dims(i, rank);
      if (rank == 0) dims = {0};
      for (int64_t& d : dims) d = wrap_dim(d, rank) + 1;
      args[i] = ints_arg(c.ctx(), dims);
    } else if (none) {
      flat = true;
      args[i] = int_arg(1);
    } else {
      args[i] = int_arg(c.args().dim(i, rank) + 1);
    }
  }
  if (!found) return false;
  if (flat) {
    auto& self = std::get<TensorArg>(args[0]);
    const std::vector<Expr> sizes = b.type(self.value).sizes;
    const Expr rest = product(c.ctx(), std::span(sizes).subspan(1));
    self.value = b.reshape(self.value, {sizes[0], rest});
  }
  const std::vector<ValueId> results = b.call(*c.node().op, std::move(args));
  for (size_t i = 0; i < c.node().outputs.size(); ++i) {
    const bool shaped = rank == 0 || flat;
    c.give(i, shaped ? b.reshape(results[i], c.with_batch(c.out_type(i).sizes)) : results[i]);
  }
  return true;
}

bool batch_as_is(BatchContext& c) {
  for (size_t i = 0; i < c.args().size(); ++i) {
    if (std::holds_alternative<TensorList>(c.args()[i])) return false;
    if (c.args().is_tensor(i) && c.args().rank(i) == 0) return false;
  }
  std::vector<Arg> args = c.node().args;
  for (size_t i = 0; i < args.size(); ++i) {
    if (c.args().is_tensor(i)) args[i] = TensorArg{c.all(i)};
  }
  c.give_call(std::move(args));
  return true;
}

// ---- The host's vmap -----------------------------------------------------------------------------------------------------

void batch_by_host(BatchContext& c) {
  const OpDef& op = *c.node().op;
  // Inverse transforms of real numbers are views of others, only marked as their conjugates.
  const bool inverse = op.name == "fft_ifft" || op.name.starts_with("fft_ihfft");
  const bool conjugated = (op.name == "linalg_lu_solve" || op.name == "svd") && is_complex(c.out_type().dtype);
  if (conjugated || (inverse && !is_complex(c.args().type(0).dtype))) throw Unsupported("a lazily conjugated view");
  // Ranks of empty matrices the host makes once for all examples.
  if (op.name.starts_with("linalg_matrix_rank") && is_zero(c.ctx(), c.args().type(0).numel(c.ctx()))) {
    throw Unsupported("vmap of the rank of an empty matrix");
  }
  refuse_promotion(c);
  std::vector<Arg> args = c.mapped_args();
  std::vector<bool> batched;
  for (const Arg& arg : c.node().args) {
    if (const auto* tensor = std::get_if<TensorArg>(&arg)) batched.push_back(c.of(tensor->value).batched);
    if (const auto* list = std::get_if<TensorList>(&arg)) {
      for (const ValueId v : list->values) batched.push_back(c.of(v).batched);
    }
  }
  args.emplace_back(std::move(batched));
  std::vector<TensorType> types;
  for (size_t i = 0; i < c.node().outputs.size(); ++i) {
    const TensorType& one = c.out_type(i);
    types.push_back(contiguous_type(c.ctx(), one.dtype, one.device, c.with_batch(one.sizes)));
  }
  const OpDef& host = host_transform(op, HostTransform::kBatch);
  c.give_all(c.builder().host_call(host, std::move(args), std::move(types)));
}

}  // namespace tatara
