// Views of several tensors at once (broadcast_tensors, meshgrid, atleast_nd), and rarer spellings of views and copies.
#include <algorithm>

#include "ops/core/family_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

// ---- lists of views --------------------------------------------------------------------------------------------------

Values decompose_broadcast_tensors(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const Values tensors = args.tensors(0);
  const MetaContext m(b.graph(), OpRegistry::global().get("broadcast_tensors"), arguments, b.default_dtype());
  std::vector<const std::vector<Expr>*> shapes;
  for (const ValueId t : tensors) shapes.push_back(&b.type(t).sizes);
  const std::vector<Expr> sizes = m.broadcast(shapes);
  Values results;
  for (const ValueId t : tensors) {
    results.push_back(same_sizes(b.ctx(), b.type(t).sizes, sizes) ? t : b.op("expand", {TensorArg{t}, SymInts{sizes}}));
  }
  return results;
}

Values decompose_meshgrid(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  Values tensors = args.tensors(0);
  const std::string indexing = args.none(1) ? "ij" : args.str(1);
  if (indexing != "ij" && indexing != "xy") {
    throw InvalidArgument("torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: " + indexing);
  }
  for (const ValueId t : tensors) {
    if (b.type(t).dim() > 1) {
      throw InvalidArgument("torch.meshgrid: Expected 0D or 1D tensor in the tensor list");
    }
    if (b.type(t).dtype != b.type(tensors[0]).dtype) {
      throw InvalidArgument("torch.meshgrid expects all tensors to have the same dtype");
    }
  }
  const bool swapped = indexing == "xy" && tensors.size() >= 2;
  if (swapped) std::swap(tensors[0], tensors[1]);
  std::vector<Expr> sizes;
  for (const ValueId t : tensors) sizes.push_back(product(b.ctx(), b.type(t).sizes));
  Values results;
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<Expr> column(tensors.size(), b.ctx().constant(1));
    column[i] = sizes[i];
    const ValueId line = b.op("view", {TensorArg{tensors[i]}, SymInts{column}});
    results.push_back(b.op("expand", {TensorArg{line}, SymInts{sizes}}));
  }
  if (swapped) std::swap(results[0], results[1]);
  return results;
}

ValueId at_least(GraphBuilder& b, ValueId x, int64_t rank) {
  const std::vector<Expr>& sizes = b.type(x).sizes;
  const Expr one = b.ctx().constant(1);
  const auto have = static_cast<int64_t>(sizes.size());
  if (have >= rank) return x;
  if (have == 0) return b.reshape(x, std::vector<Expr>(static_cast<size_t>(rank), one));
  if (have == 2) return b.unsqueeze(x, 2);
  const ValueId row = b.unsqueeze(x, 0);
  return rank == 2 ? row : b.unsqueeze(row, 2);
}

DecomposeFn at_least_one(int64_t rank) {
  return [rank](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    return {at_least(b, Args(b, arguments).tensor(0), rank)};
  };
}

DecomposeFn at_least_each(int64_t rank) {
  return [rank](GraphBuilder& b, std::span<const Arg> arguments) {
    Values results;
    for (const ValueId t : Args(b, arguments).tensors(0)) results.push_back(at_least(b, t, rank));
    // A tuple of one cannot be told from a tensor by the tracer.
    if (results.size() < 2) throw Unsupported("atleast_nd of a list of one tensor");
    return results;
  };
}

// ---- spellings -------------------------------------------------------------------------------------------------------

/// What reduces a gradient to the sizes of an operand that was broadcast: a sum, or a view, or the tensor itself.
Values decompose_sum_to_size(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  ExprContext& ctx = b.ctx();
  const std::vector<Expr> sizes = args.exprs(1);
  const TensorType self = args.type(0);
  if (sizes.size() > self.sizes.size()) throw InvalidArgument("size is not expandable to the tensor's size");
  if (sizes.empty()) return {b.op("sum", {TensorArg{args.tensor(0)}})};
  const size_t lead = self.sizes.size() - sizes.size();
  std::vector<int64_t> dims;
  for (size_t d = 0; d < self.sizes.size(); ++d) {
    if (d < lead) {
      dims.push_back(static_cast<int64_t>(d));
      continue;
    }
    if (same_size(ctx, sizes[d - lead], self.sizes[d])) continue;
    if (!is_one(ctx, sizes[d - lead])) throw InvalidArgument("size is not expandable to the tensor's size");
    dims.push_back(static_cast<int64_t>(d));
  }
  ValueId x = args.tensor(0);
  if (!dims.empty()) x = b.reduce("sum", x, dims, true);
  return {lead > 0 ? b.op("view", {TensorArg{x}, SymInts{sizes}}) : x};
}

Values decompose_squeeze_copy(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const ValueId x =
      b.op(args.size() == 1 ? "squeeze" : "squeeze.dim", std::vector<Arg>(arguments.begin(), arguments.end()));
  return {contiguous_copy(b, x)};
}

Values decompose_diagflat(GraphBuilder& b, std::span<const Arg> arguments) {
  const ValueId flat = b.op("reshape", {arguments[0], SymInts{{b.ctx().constant(-1)}}});
  return {b.op("diag_embed", {TensorArg{flat}, arguments[1], int_arg(0), int_arg(1)})};
}

/// fftshift: by half the size; ifftshift: back.
DecomposeFn shift(bool inverse) {
  return [inverse](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    std::vector<int64_t> dims, shifts;
    if (args.none(1)) {
      for (int64_t d = 0; d < args.rank(0); ++d) dims.push_back(d);
    } else {
      for (const int64_t d : args.integers(1)) dims.push_back(wrap_dim(d, args.rank(0)));
    }
    for (const int64_t d : dims) {
      const Expr size = args.type(0).sizes.at(static_cast<size_t>(d));
      if (!size.is_const()) throw Unsupported("a shift along a dimension of symbolic size");
      shifts.push_back((size.const_value() + (inverse ? 1 : 0)) / 2);
    }
    if (dims.empty()) return {b.op("clone", {arguments[0]})};
    return {b.op("roll", {arguments[0], ints_arg(b.ctx(), shifts), ints_arg(b.ctx(), dims)})};
  };
}

Values decompose_block_diag(GraphBuilder& b, std::span<const Arg> arguments) {
  ExprContext& ctx = b.ctx();
  Values blocks = Args(b, arguments).tensors(0);
  if (blocks.empty()) throw Unsupported("block_diag of nothing");
  DType dtype = b.type(blocks[0]).dtype;
  Expr width = ctx.constant(0);
  for (ValueId& t : blocks) {
    if (b.type(t).dim() > 2) throw InvalidArgument("torch.block_diag: Input tensors must have 2 or fewer dimensions");
    dtype = promote_types(dtype, b.type(t).dtype);
    t = at_least(b, t, 2);
    width = ctx.add(width, b.type(t).sizes[1]);
  }
  const Device device = b.type(blocks[0]).device;
  const auto zeros = [&](Expr rows, Expr columns) {
    const Scalar zero = is_floating(dtype) || is_complex(dtype) ? Scalar(0.0) : Scalar(int64_t{0});
    return b.op("full",
                {SymInts{{rows, columns}}, dtype == DType::kBool ? Scalar(false) : zero, dtype, NoneArg{}, device});
  };
  TensorList rows;
  Expr left = ctx.constant(0);
  for (const ValueId t : blocks) {
    const Expr height = b.type(t).sizes[0];
    const Expr right = ctx.simplify(ctx.sub(ctx.sub(width, left), b.type(t).sizes[1]));
    TensorList parts;
    if (!left.is_const(0)) parts.values.push_back(zeros(height, left));
    parts.values.push_back(copy_both_ways(b, b.cast(t, dtype)));
    if (!right.is_const(0)) parts.values.push_back(zeros(height, right));
    rows.values.push_back(b.op("cat", {parts, int_arg(1)}));
    left = ctx.simplify(ctx.add(left, b.type(t).sizes[1]));
  }
  return {b.op("cat", {rows, int_arg(0)})};
}

Values decompose_cartesian_prod(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  const Values tensors = args.tensors(0);
  for (const ValueId t : tensors) {
    if (b.type(t).dim() != 1) throw InvalidArgument("Expect a 1D vector, but got a tensor of another rank");
  }
  if (tensors.size() < 2) throw Unsupported("cartesian_prod of one tensor is that tensor");
  TensorList columns;
  for (const ValueId grid : decompose_meshgrid(b, std::vector<Arg>{arguments[0], NoneArg{}})) {
    columns.values.push_back(b.op("reshape", {TensorArg{grid}, SymInts{{b.ctx().constant(-1)}}}));
  }
  return {b.op("stack", {columns, int_arg(1)})};
}

Values decompose_kron(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  ExprContext& ctx = b.ctx();
  const auto left = args.type(0).sizes, right = args.type(1).sizes;
  const size_t rank = std::max(left.size(), right.size());
  std::vector<Expr> a, c, sizes;
  for (size_t d = 0; d < rank; ++d) {
    const auto size = [&](const std::vector<Expr>& of) {
      return d + of.size() >= rank ? of[d + of.size() - rank] : ctx.constant(1);
    };
    a.insert(a.end(), {size(left), ctx.constant(1)});
    c.insert(c.end(), {ctx.constant(1), size(right)});
    sizes.push_back(ctx.mul(size(left), size(right)));
  }
  const ValueId grown = b.binary("mul", b.reshape(args.tensor(0), a), b.reshape(args.tensor(1), c));
  return {b.reshape(grown, sizes)};
}

Values decompose_trace(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (args.rank(0) != 2) throw InvalidArgument("trace: expected a matrix");
  const ValueId diagonal = b.op("diagonal", {arguments[0], int_arg(0), int_arg(0), int_arg(1)});
  return {b.op("sum", {TensorArg{diagonal}})};
}

Choice linalg_diagonal(MetaContext& m) { return {"diagonal", {m.arg(0), m.arg(1), m.arg(2), m.arg(3)}}; }

void add_list_choice(OpRegistry& r, const char* name, const char* schema, const char* names, ChooseFn choose) {
  OpDef def = make_op({name, OpKind::kComposite, schema, names}, nullptr);
  def.choose = std::move(choose);
  def.has_out = false;
  r.add(std::move(def));
}

}  // namespace

void register_view_lists(OpRegistry& r) {
  const auto composite = OpKind::kComposite;
  const auto add = [&](const char* name, const char* schema, const char* names, DecomposeFn fn) {
    r.add(make_op({name, composite, schema, names}, nullptr, std::move(fn)));
  };
  const char* list = "(Tensor(a)[] tensors) -> Tensor(a)[]";
  const char* one = "(Tensor(a) self) -> Tensor(a)";
  add("broadcast_tensors", list, "torch.broadcast_tensors", decompose_broadcast_tensors);
  add("meshgrid", "(Tensor(a)[] tensors, *, str? indexing=None) -> Tensor(a)[]", "torch.meshgrid", decompose_meshgrid);
  add("atleast_2d", one, "torch.atleast_2d", at_least_one(2));
  add("atleast_3d", one, "torch.atleast_3d", at_least_one(3));
  add("atleast_1d.list", list, "torch.atleast_1d", at_least_each(1));
  add("atleast_2d.list", list, "torch.atleast_2d", at_least_each(2));
  add("atleast_3d.list", list, "torch.atleast_3d", at_least_each(3));
  add("sum_to_size", "(Tensor(a) self, SymInt[] size) -> Tensor(a)", "torch.Tensor.sum_to_size", decompose_sum_to_size);
  const char* squeeze = "torch.squeeze_copy";
  add("squeeze_copy", "(Tensor self) -> Tensor", squeeze, decompose_squeeze_copy);
  add("squeeze_copy.dim", "(Tensor self, int[1] dim) -> Tensor", squeeze, decompose_squeeze_copy);
  r.mark(&OpTraits::hands_tangent_on, {"squeeze_copy", "squeeze_copy.dim"});
  add("diagflat", "(Tensor self, int offset=0) -> Tensor", "torch.diagflat torch.Tensor.diagflat", decompose_diagflat);
  add("fft_fftshift", "(Tensor self, int[1]? dim=None) -> Tensor", "torch.fft.fftshift", shift(false));
  add("fft_ifftshift", "(Tensor self, int[1]? dim=None) -> Tensor", "torch.fft.ifftshift", shift(true));
  add("block_diag", "(Tensor[] tensors) -> Tensor", "torch.block_diag torch._C._VariableFunctions.block_diag",
      decompose_block_diag);
  add("cartesian_prod", "(Tensor[] tensors) -> Tensor", "torch.cartesian_prod", decompose_cartesian_prod);
  add("kron", "(Tensor self, Tensor other) -> Tensor", "torch.kron torch.Tensor.kron", decompose_kron);
  add("trace", "(Tensor self) -> Tensor", "torch.trace torch.Tensor.trace", decompose_trace);
  // Eager gives the very tensor back unless its negative bit is set; such tensors do not come here.
  add_list_choice(r, "resolve_neg", one, "torch.resolve_neg torch.Tensor.resolve_neg",
                  [](MetaContext&) -> Choice { return {"alias_self", {}}; });
  add_list_choice(r, "linalg_diagonal", "(Tensor(a) A, *, int offset=0, int dim1=-2, int dim2=-1) -> Tensor(a)",
                  "torch.linalg.diagonal", linalg_diagonal);
  r.mark(&OpTraits::may_view, {"atleast_2d", "atleast_3d"});
}

}  // namespace tatara
