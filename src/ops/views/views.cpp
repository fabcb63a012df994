// View operators. The primitive ones (kind kView) have index maps; the others are spellings of them, chosen by arguments.
#include <algorithm>
#include <numeric>

#include "ops/core/view_util.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;

size_t at(int64_t i) { return static_cast<size_t>(i); }

TensorType with(const TensorType& self, std::vector<Expr> sizes, std::vector<Expr> strides) {
  TensorType type = self;
  type.is_wrapped_number = false;
  type.sizes = std::move(sizes);
  type.strides = std::move(strides);
  return type;
}

std::vector<int64_t> dims_of(MetaContext& m, size_t arg) {
  std::vector<int64_t> dims;
  for (const Expr e : m.ints(arg)) dims.push_back(m.ctx().specialize(e));
  return dims;
}

SymInts int_list(ExprContext& ctx, const std::vector<int64_t>& dims) {
  SymInts list;
  for (const int64_t d : dims) list.values.push_back(ctx.constant(d));
  return list;
}

// ---- view, permute, expand ---------------------------------------------------------------------------------------------

std::vector<TensorType> view_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  std::vector<Expr> sizes = infer_sizes(m.ctx(), m.ints(1), self.sizes);
  const auto strides = view_strides(m.ctx(), self, sizes);
  if (!strides) {
    throw InvalidArgument(
        "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
        "contiguous subspaces). Use .reshape(...) instead.");
  }
  return {with(self, std::move(sizes), *strides)};
}

void reshape_lower(LowerContext& ctx) {
  const IndexMap map = reshape_map(ctx.ctx(), ctx.operand(0).sizes, ctx.result().sizes);
  ctx.view(map);
}

/// reshape where only a copy will do: a fresh contiguous tensor.
std::vector<TensorType> reshape_copy_meta(MetaContext& m) {
  std::vector<Expr> sizes = infer_sizes(m.ctx(), m.ints(1), m.tensor(0).sizes);
  std::vector<Expr> strides = contiguous_strides(m.ctx(), sizes);
  return {with(m.tensor(0), std::move(sizes), std::move(strides))};
}

void reshape_copy_lower(LowerContext& ctx) {
  const IndexMap map = reshape_map(ctx.ctx(), ctx.operand(0).sizes, ctx.result().sizes);
  ctx.pointwise(0, [map](LoopBuilder& b, std::span<const Expr> indices) { return b.load(0, map(indices)); });
}

Choice reshape_to(MetaContext& m, std::vector<Expr> sizes) {
  sizes = infer_sizes(m.ctx(), std::move(sizes), m.tensor(0).sizes);
  const bool viewable = view_strides(m.ctx(), m.tensor(0), sizes).has_value();
  return {viewable ? "view" : "reshape_copy", {m.arg(0), SymInts{std::move(sizes)}}};
}

std::vector<int64_t> wrapped_permutation(const std::vector<int64_t>& dims, int64_t rank) {
  if (static_cast<int64_t>(dims.size()) != rank) {
    throw InvalidArgument(
        str_cat("permute(sparse_coo): number of dimensions in the tensor input does not match the "
                "length of the desired ordering of dimensions i.e. input.dim() = ",
                rank, " is not equal to len(dims) = ", dims.size()));
  }
  std::vector<int64_t> result;
  for (const int64_t d : dims) {
    const int64_t wrapped = wrap_dim(d, rank);
    if (std::find(result.begin(), result.end(), wrapped) != result.end()) {
      throw InvalidArgument("permute(): duplicate dims are not allowed.");
    }
    result.push_back(wrapped);
  }
  return result;
}

std::vector<TensorType> permute_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  std::vector<Expr> sizes;
  std::vector<Expr> strides;
  for (const int64_t d : wrapped_permutation(dims_of(m, 1), self.dim())) {
    sizes.push_back(self.sizes[at(d)]);
    strides.push_back(self.strides[at(d)]);
  }
  return {with(self, std::move(sizes), std::move(strides))};
}

void permute_lower(LowerContext& ctx) {
  const std::vector<int64_t> dims = wrapped_permutation(Args(ctx).integers(1), ctx.operand(0).dim());
  ctx.view([dims](std::span<const Expr> out) {
    std::vector<Expr> in(out.size());
    for (size_t i = 0; i < dims.size(); ++i) in[at(dims[i])] = out[i];
    return in;
  });
}

Choice permuted(MetaContext& m, const std::vector<int64_t>& dims) {
  return {"permute", {m.arg(0), int_list(m.ctx(), dims)}};
}

std::vector<int64_t> identity(int64_t rank) {
  std::vector<int64_t> dims(at(rank));
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

Choice transposed(MetaContext& m, int64_t a, int64_t b) {
  std::vector<int64_t> dims = identity(m.tensor(0).dim());
  if (dims.empty()) return {"alias", {m.arg(0)}};
  std::swap(dims[at(wrap_dim(a, m.tensor(0).dim()))], dims[at(wrap_dim(b, m.tensor(0).dim()))]);
  return permuted(m, dims);
}

std::vector<TensorType> expand_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  std::vector<Expr> sizes = m.ints(1);
  if (sizes.size() < self.sizes.size()) {
    throw InvalidArgument(str_cat("expand: the number of sizes provided (", sizes.size(),
                                  ") must be greater or equal to the number of dimensions in the tensor (", self.dim(),
                                  ")"));
  }
  std::vector<Expr> strides(sizes.size(), m.ctx().constant(0));
  const size_t offset = sizes.size() - self.sizes.size();
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (d < offset) {
      if (sizes[d].is_const(-1))
        throw InvalidArgument("expand: -1 isn't allowed in a leading, non-existing dimension 0");
      continue;
    }
    const Expr own = self.sizes[d - offset];
    if (sizes[d].is_const(-1)) sizes[d] = own;
    if (sizes[d] == own || (!own.is_const(1) && m.ctx().guard(m.ctx().eq(sizes[d], own)))) {
      strides[d] = self.strides[d - offset];
    } else if (!own.is_const(1)) {
      throw InvalidArgument(str_cat("The expanded size of the tensor (", sizes[d].str(),
                                    ") must match the existing size (", own.str(), ") at non-singleton dimension ", d,
                                    "."));
    }
  }
  // Eager counts on from the dimension behind where a leading size is one.
  for (size_t d = self.dim() == 0 ? 0 : offset; d-- > 0;) {
    if (!sizes[d].is_const(1)) continue;
    strides[d] = d + 1 < sizes.size() ? m.ctx().mul(sizes[d + 1], strides[d + 1]) : m.ctx().constant(1);
  }
  return {with(self, std::move(sizes), std::move(strides))};
}

void expand_lower(LowerContext& ctx) {
  ExprContext& c = ctx.ctx();
  const std::vector<Expr> sizes = ctx.operand(0).sizes;
  ctx.view([&c, sizes](std::span<const Expr> out) { return broadcast_indices(c, out, sizes); });
}

// ---- slice, select, dimensions of size one -----------------------------------------------------------------------------

std::vector<TensorType> slice_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  if (self.dim() == 0) throw InvalidArgument("slice() cannot be applied to a 0-dim tensor.");
  const size_t d = at(m.dim(1, self.dim()));
  const SliceRange range = slice_range(m.ctx(), self.sizes[d], m.arg(2), m.arg(3), m.arg(4));
  TensorType type = with(self, self.sizes, self.strides);
  type.sizes[d] = range.length;
  type.strides[d] = m.ctx().mul(self.strides[d], range.step);
  return {type};
}

void slice_lower(LowerContext& ctx) {
  ExprContext& c = ctx.ctx();
  const TensorType& self = ctx.operand(0);
  const size_t d = at(Args(ctx).dim(1, self.dim()));
  const auto& args = ctx.node().args;
  const SliceRange range = slice_range(c, self.sizes[d], args[2], args[3], args[4]);
  ctx.view([&c, range, d](std::span<const Expr> out) {
    std::vector<Expr> in(out.begin(), out.end());
    in[d] = c.add(range.start, c.mul(in[d], range.step));
    return in;
  });
}

std::vector<TensorType> select_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  if (self.dim() == 0) throw InvalidArgument("select() cannot be applied to a 0-dim tensor.");
  const size_t d = at(m.dim(1, self.dim()));
  wrap_index(m.ctx(), m.ints(2).front(), self.sizes[d], static_cast<int64_t>(d), true);
  TensorType type = with(self, self.sizes, self.strides);
  type.sizes.erase(type.sizes.begin() + static_cast<std::ptrdiff_t>(d));
  type.strides.erase(type.strides.begin() + static_cast<std::ptrdiff_t>(d));
  return {type};
}

void select_lower(LowerContext& ctx) {
  const TensorType& self = ctx.operand(0);
  const Args args(ctx);
  const size_t d = at(args.dim(1, self.dim()));
  const Expr index = wrap_index(ctx.ctx(), args.expr(2), self.sizes[d], static_cast<int64_t>(d), true);
  ctx.view([index, d](std::span<const Expr> out) {
    std::vector<Expr> in(out.begin(), out.end());
    in.insert(in.begin() + static_cast<std::ptrdiff_t>(d), index);
    return in;
  });
}

std::vector<TensorType> unsqueeze_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  const size_t d = at(m.dim(1, self.dim() + 1));
  TensorType type = with(self, self.sizes, self.strides);
  const Expr stride = d < self.sizes.size() ? m.ctx().mul(self.sizes[d], self.strides[d]) : m.ctx().constant(1);
  type.sizes.insert(type.sizes.begin() + static_cast<std::ptrdiff_t>(d), m.ctx().constant(1));
  type.strides.insert(type.strides.begin() + static_cast<std::ptrdiff_t>(d), stride);
  return {type};
}

void unsqueeze_lower(LowerContext& ctx) {
  const size_t d = at(Args(ctx).dim(1, ctx.operand(0).dim() + 1));
  ctx.view([d](std::span<const Expr> out) {
    std::vector<Expr> in(out.begin(), out.end());
    in.erase(in.begin() + static_cast<std::ptrdiff_t>(d));
    return in;
  });
}

/// Which of the given dimensions have size one (all dimensions without an argument).
std::vector<bool> squeezed(ExprContext& ctx, const TensorType& self, const std::vector<int64_t>* dims) {
  std::vector<bool> gone(self.sizes.size(), false);
  for (size_t d = 0; d < self.sizes.size(); ++d) {
    bool asked = dims == nullptr;
    if (dims != nullptr) {
      for (const int64_t wanted : *dims) asked = asked || wrap_dim(wanted, self.dim()) == static_cast<int64_t>(d);
    }
    gone[d] = asked && is_one(ctx, self.sizes[d]);
  }
  return gone;
}

std::vector<TensorType> squeeze_type(MetaContext& m, const std::vector<int64_t>* dims) {
  const TensorType& self = m.tensor(0);
  if (dims != nullptr) {
    for (const int64_t d : *dims) wrap_dim(d, self.dim());
  }
  const std::vector<bool> gone = squeezed(m.ctx(), self, dims);
  TensorType type = with(self, {}, {});
  for (size_t d = 0; d < gone.size(); ++d) {
    if (gone[d]) continue;
    type.sizes.push_back(self.sizes[d]);
    type.strides.push_back(self.strides[d]);
  }
  return {type};
}

void squeeze_lower_with(LowerContext& ctx, const std::vector<int64_t>* dims) {
  const std::vector<bool> gone = squeezed(ctx.ctx(), ctx.operand(0), dims);
  const Expr zero = ctx.ctx().constant(0);
  ctx.view([gone, zero](std::span<const Expr> out) {
    std::vector<Expr> in;
    size_t next = 0;
    for (const bool dropped : gone) in.push_back(dropped ? zero : out[next++]);
    return in;
  });
}

// ---- diagonal, unfold, alias -------------------------------------------------------------------------------------------

struct Diagonal {
  size_t a;
  size_t b;
  int64_t offset;
};

Diagonal diagonal_of(const Args& args, int64_t rank) {
  const Diagonal d{at(args.dim(2, rank)), at(args.dim(3, rank)), args.integer(1)};
  if (d.a == d.b) throw InvalidArgument("diagonal dimensions cannot be identical");
  return d;
}

std::vector<TensorType> diagonal_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  const Diagonal d{at(m.dim(2, self.dim())), at(m.dim(3, self.dim())), m.integer(1)};
  if (d.a == d.b) {
    throw InvalidArgument(str_cat("diagonal dimensions cannot be identical ", m.integer(2), ", ", m.integer(3)));
  }
  ExprContext& c = m.ctx();
  const Expr rows = d.offset >= 0 ? self.sizes[d.a] : c.add(self.sizes[d.a], c.constant(d.offset));
  const Expr columns = d.offset >= 0 ? c.sub(self.sizes[d.b], c.constant(d.offset)) : self.sizes[d.b];
  const Expr length = c.max(c.min(rows, columns), c.constant(0));
  TensorType type = with(self, {}, {});
  for (size_t i = 0; i < self.sizes.size(); ++i) {
    if (i == d.a || i == d.b) continue;
    type.sizes.push_back(self.sizes[i]);
    type.strides.push_back(self.strides[i]);
  }
  type.sizes.push_back(length);
  type.strides.push_back(c.add(self.strides[d.a], self.strides[d.b]));
  return {type};
}

void diagonal_lower(LowerContext& ctx) {
  ExprContext& c = ctx.ctx();
  const size_t rank = ctx.operand(0).sizes.size();
  const Diagonal d = diagonal_of(Args(ctx), static_cast<int64_t>(rank));
  ctx.view([&c, d, rank](std::span<const Expr> out) {
    std::vector<Expr> in(rank);
    size_t next = 0;
    for (size_t i = 0; i < rank; ++i) {
      if (i != d.a && i != d.b) in[i] = out[next++];
    }
    in[d.a] = c.add(out.back(), c.constant(std::max<int64_t>(-d.offset, 0)));
    in[d.b] = c.add(out.back(), c.constant(std::max<int64_t>(d.offset, 0)));
    return in;
  });
}

std::vector<TensorType> unfold_meta(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  const size_t d = at(m.dim(1, self.dim()));
  ExprContext& c = m.ctx();
  const Expr size = m.ints(2).front();
  if (self.dim() == 0) {
    if (!c.guard(c.le(size, c.constant(1)))) throw InvalidArgument("maximum size for tensor at dimension 0 is 1");
    return {with(self, {size}, {c.constant(1)})};
  }
  const Expr step = m.ints(3).front();
  if (!c.guard(c.le(size, self.sizes[d]))) throw InvalidArgument("maximum size for tensor at dimension is smaller");
  TensorType type = with(self, self.sizes, self.strides);
  type.sizes[d] = c.add(c.floordiv(c.sub(self.sizes[d], size), step), c.constant(1));
  type.strides[d] = c.mul(self.strides[d], step);
  type.sizes.push_back(size);
  type.strides.push_back(self.strides[d]);
  return {type};
}

void unfold_lower(LowerContext& ctx) {
  ExprContext& c = ctx.ctx();
  const Args args(ctx);
  const size_t d = at(args.dim(1, ctx.operand(0).dim()));
  const Expr step = args.expr(3);
  ctx.view([&c, d, step](std::span<const Expr> out) {
    std::vector<Expr> in(out.begin(), out.end() - 1);
    if (in.empty()) return in;
    in[d] = c.add(c.mul(in[d], step), out.back());
    return in;
  });
}

std::vector<TensorType> alias_meta(MetaContext& m) {
  return {with(m.tensor(0), m.tensor(0).sizes, m.tensor(0).strides)};
}
void alias_lower(LowerContext& ctx) {
  ctx.view([](std::span<const Expr> out) { return std::vector<Expr>(out.begin(), out.end()); });
}

// ---- spellings ---------------------------------------------------------------------------------------------------------

void add_choice(OpRegistry& r, const char* name, const char* schema, const char* names, ChooseFn choose) {
  OpDef def;
  def.name = name;
  def.kind = OpKind::kComposite;
  def.schema_text = schema;
  def.names = names;
  def.choose = std::move(choose);
  r.add(std::move(def));
}

Choice flattened(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  const size_t first = at(m.dim(1, self.dim()));
  const size_t last = at(m.dim(2, self.dim()));
  if (self.dim() == 0) return reshape_to(m, {m.ctx().constant(1)});
  if (first > last) throw InvalidArgument("flatten() has invalid args: start_dim cannot come after end_dim");
  if (first == last) return {"alias_self", {}};
  std::vector<Expr> sizes(self.sizes.begin(), self.sizes.begin() + static_cast<std::ptrdiff_t>(first));
  sizes.push_back(product(m.ctx(), std::span(self.sizes).subspan(first, last - first + 1)));
  sizes.insert(sizes.end(), self.sizes.begin() + static_cast<std::ptrdiff_t>(last) + 1, self.sizes.end());
  return reshape_to(m, std::move(sizes));
}

Choice unflattened(MetaContext& m) {
  const TensorType& self = m.tensor(0);
  const size_t d = at(wrap_real_dim(m.integer(1), self.dim()));
  std::vector<Expr> sizes(self.sizes.begin(), self.sizes.begin() + static_cast<std::ptrdiff_t>(d));
  const std::vector<Expr> inner = infer_sizes(m.ctx(), m.ints(2), {self.sizes[d]});
  sizes.insert(sizes.end(), inner.begin(), inner.end());
  sizes.insert(sizes.end(), self.sizes.begin() + static_cast<std::ptrdiff_t>(d) + 1, self.sizes.end());
  return {"view", {m.arg(0), SymInts{std::move(sizes)}}};
}

Choice moved(MetaContext& m) {
  const int64_t rank = m.tensor(0).dim();
  const std::vector<int64_t> from = dims_of(m, 1);
  const std::vector<int64_t> to = dims_of(m, 2);
  for (const int64_t d : from) static_cast<void>(wrap_dim(d, rank));
  for (const int64_t d : to) static_cast<void>(wrap_dim(d, rank));
  if (rank == 0) return {"alias", {m.arg(0)}};
  std::vector<int64_t> order(at(rank), -1);
  std::vector<bool> taken(at(rank), false);
  for (size_t i = 0; i < from.size() && i < to.size(); ++i) {
    order[at(wrap_dim(to[i], rank))] = wrap_dim(from[i], rank);
    taken[at(wrap_dim(from[i], rank))] = true;
  }
  int64_t next = 0;
  for (int64_t& slot : order) {
    if (slot >= 0) continue;
    while (taken[at(next)]) ++next;
    slot = next++;
  }
  return permuted(m, order);
}

void register_spellings(OpRegistry& r) {
  add_choice(r, "reshape", "(Tensor self, SymInt[] shape) -> Tensor", "torch.reshape torch.Tensor.reshape",
             [](MetaContext& m) { return reshape_to(m, m.ints(1)); });
  add_choice(r, "reshape_as", "(Tensor self, Tensor other) -> Tensor", "torch.Tensor.reshape_as",
             [](MetaContext& m) { return reshape_to(m, m.tensor(1).sizes); });
  add_choice(r, "view_as", "(Tensor self, Tensor other) -> Tensor", "torch.Tensor.view_as",
             [](MetaContext& m) -> Choice { return {"view", {m.arg(0), SymInts{m.tensor(1).sizes}}}; });
  add_choice(r, "flatten", "(Tensor self, int start_dim=0, int end_dim=-1) -> Tensor",
             "torch.flatten torch.Tensor.flatten", flattened);
  add_choice(r, "ravel", "(Tensor self) -> Tensor", "torch.ravel torch.Tensor.ravel", [](MetaContext& m) -> Choice {
    const TensorType& self = m.tensor(0);
    if (!is_contiguous(m.ctx(), self)) return {"reshape_copy", {m.arg(0), SymInts{{self.numel(m.ctx())}}}};
    return reshape_to(m, {m.ctx().constant(-1)});
  });
  add_choice(r, "unflatten", "(Tensor self, int dim, SymInt[] sizes) -> Tensor",
             "torch.unflatten torch.Tensor.unflatten", unflattened);
  const char* two = "(Tensor self, int dim0, int dim1) -> Tensor";
  add_choice(r, "transpose", two,
             "torch.transpose torch.swapdims torch.swapaxes torch.Tensor.transpose torch.Tensor.swapdims "
             "torch.Tensor.swapaxes",
             [](MetaContext& m) { return transposed(m, m.integer(1), m.integer(2)); });
  add_choice(r, "t", "(Tensor self) -> Tensor", "torch.t torch.Tensor.t", [](MetaContext& m) -> Choice {
    if (m.tensor(0).dim() > 2) throw InvalidArgument("t() expects a tensor with <= 2 dimensions");
    return m.tensor(0).dim() < 2 ? Choice{"alias", {m.arg(0)}} : transposed(m, 0, 1);
  });
  add_choice(r, "T", "(Tensor self) -> Tensor", "torch.Tensor.T.__get__", [](MetaContext& m) {
    std::vector<int64_t> dims = identity(m.tensor(0).dim());
    std::reverse(dims.begin(), dims.end());
    return permuted(m, dims);
  });
  add_choice(r, "mT", "(Tensor self) -> Tensor", "torch.Tensor.mT.__get__", [](MetaContext& m) {
    if (m.tensor(0).dim() < 2) throw InvalidArgument("tensor.mT is only supported on matrices or batches of matrices.");
    return transposed(m, -2, -1);
  });
  add_choice(r, "movedim", "(Tensor self, int[1] source, int[1] destination) -> Tensor",
             "torch.movedim torch.moveaxis torch.Tensor.movedim torch.Tensor.moveaxis", moved);
  add_choice(r, "expand_as", "(Tensor self, Tensor other) -> Tensor", "torch.Tensor.expand_as",
             [](MetaContext& m) -> Choice { return {"expand", {m.arg(0), SymInts{m.tensor(1).sizes}}}; });
  add_choice(r, "broadcast_to", "(Tensor self, SymInt[] size) -> Tensor",
             "torch.broadcast_to torch.Tensor.broadcast_to",
             [](MetaContext& m) -> Choice { return {"expand", {m.arg(0), m.arg(1)}}; });
  add_choice(r, "narrow", "(Tensor self, int dim, SymInt start, SymInt length) -> Tensor",
             "torch.narrow torch.Tensor.narrow", [](MetaContext& m) -> Choice {
               ExprContext& c = m.ctx();
               const size_t d = at(wrap_real_dim(m.integer(1), m.tensor(0).dim()));
               const Expr start = m.ints(2).front();
               const Expr length = m.ints(3).front();
               const Expr size = m.tensor(0).sizes[d];
               const Expr from = c.guard(c.lt(start, c.constant(0))) ? c.add(start, size) : start;
               const Expr zero = c.constant(0);
               if (!c.guard(c.le(zero, from)) || !c.guard(c.le(start, size)))
                 throw InvalidArgument("start out of range");
               if (!c.guard(c.le(zero, length))) throw InvalidArgument("narrow(): length must be non-negative.");
               if (!c.guard(c.le(c.add(from, length), size)))
                 throw InvalidArgument("start + length exceeds dimension size");
               return {"slice", {m.arg(0), m.arg(1), Scalar(from), Scalar(c.add(from, length)), Scalar(int64_t{1})}};
             });
  add_choice(r, "real", "(Tensor self) -> Tensor", "torch.real torch.Tensor.real.__get__",
             [](MetaContext& m) -> Choice {
               if (is_complex(m.tensor(0).dtype)) return {"real_part", {m.arg(0)}};
               return {"alias_self", {}};
             });
  add_choice(r, "conj", "(Tensor self) -> Tensor",
             "torch.conj torch.Tensor.conj torch.resolve_conj torch.Tensor.resolve_conj", [](MetaContext& m) -> Choice {
               if (is_complex(m.tensor(0).dtype)) throw Unsupported("lazy conjugation runs in eager");
               return {"alias_self", {}};
             });
}

}  // namespace

void register_views(OpRegistry& r) {
  const auto view = [&](const char* name, const char* schema, const char* names, MetaFn meta, LowerFn lower) {
    r.add(make_op({name, OpKind::kView, schema, names}, std::move(meta), nullptr, std::move(lower)));
  };
  view("view", "(Tensor self, SymInt[] size) -> Tensor", "torch.Tensor.view", view_meta, reshape_lower);
  view("permute", "(Tensor self, int[] dims) -> Tensor", "torch.permute torch.Tensor.permute", permute_meta,
       permute_lower);
  view("expand", "(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor", "torch.Tensor.expand", expand_meta,
       expand_lower);
  view("slice", "(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
       "torch.ops.aten.slice.Tensor", slice_meta, slice_lower);
  view("select", "(Tensor self, int dim, SymInt index) -> Tensor", "torch.select torch.Tensor.select", select_meta,
       select_lower);
  view("unsqueeze", "(Tensor self, int dim) -> Tensor", "torch.unsqueeze torch.Tensor.unsqueeze", unsqueeze_meta,
       unsqueeze_lower);
  view(
      "squeeze", "(Tensor self) -> Tensor", "torch.squeeze torch.Tensor.squeeze",
      [](MetaContext& m) { return squeeze_type(m, nullptr); },
      [](LowerContext& ctx) { squeeze_lower_with(ctx, nullptr); });
  view(
      "squeeze.dim", "(Tensor self, int[1] dim) -> Tensor", "torch.squeeze torch.Tensor.squeeze",
      [](MetaContext& m) {
        const std::vector<int64_t> dims = dims_of(m, 1);
        return squeeze_type(m, &dims);
      },
      [](LowerContext& ctx) {
        std::vector<int64_t> dims;
        for (const Expr e : Args(ctx).exprs(1)) dims.push_back(e.const_value());
        squeeze_lower_with(ctx, &dims);
      });
  view("diagonal", "(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor",
       "torch.diagonal torch.Tensor.diagonal", diagonal_meta, diagonal_lower);
  view("unfold", "(Tensor self, int dimension, SymInt size, SymInt step) -> Tensor", "torch.Tensor.unfold", unfold_meta,
       unfold_lower);
  view("alias", "(Tensor self) -> Tensor", "", alias_meta, alias_lower);
  view("detach", "(Tensor self) -> Tensor", "torch.Tensor.detach torch.detach torch.Tensor.data.__get__", alias_meta,
       alias_lower);
  r.add(make_op({"reshape_copy", OpKind::kPointwise, "(Tensor self, SymInt[] size) -> Tensor", ""}, reshape_copy_meta,
                nullptr, reshape_copy_lower));
  register_spellings(r);
  r.mark(&OpTraits::repeats_operand, {"view", "expand", "reshape", "alias", "detach"});
  r.mark(&OpTraits::picks_index, {"select"});
  r.mark(&OpTraits::detaches, {"detach"});
  for (const char* name : {"view", "unfold"}) r.amend(name).traits.stride_use = StrideUse::kOperand;
  r.mark(&OpTraits::may_view, {"reshape", "reshape_as", "view_as", "flatten", "unflatten", "ravel", "t", "transpose",
                               "mT", "T", "movedim", "expand_as", "broadcast_to", "narrow", "real"});
}

}  // namespace tatara
