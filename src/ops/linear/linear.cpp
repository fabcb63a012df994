// Matrix products: what the host's kernels do, and the decompositions that eager itself uses around them, so that layouts
// of results are eager's.
#include <algorithm>
#include <array>
#include <numeric>

#include "ops/core/family_util.h"
#include "ops/linear/product_sum.h"
#include "support/error.h"

namespace tatara {
namespace {

using namespace ops;
using Values = std::vector<ValueId>;

// ---- Host products ---------------------------------------------------------------------------------------------------

void same_dtype(const MetaContext& m, const TensorType& a, const TensorType& b) {
  if (a.dtype != b.dtype) {
    throw InvalidArgument(str_cat(m.op().name, ": expected operands of the same dtype, but got ", dtype_name(a.dtype),
                                  " and ", dtype_name(b.dtype)));
  }
}

void require_rank(const MetaContext& m, const TensorType& t, int64_t rank) {
  if (t.dim() != rank) throw InvalidArgument(str_cat(m.op().name, ": expected a tensor of rank ", rank));
}

void require_equal(const MetaContext& m, Expr a, Expr b) {
  if (!same_size(m.ctx(), a, b)) {
    throw InvalidArgument(str_cat(m.op().name, ": shapes cannot be multiplied (", a.str(), " and ", b.str(), ")"));
  }
}

TensorType product_type(const MetaContext& m, const TensorType& a, const TensorType& b) {
  same_dtype(m, a, b);
  const size_t rank = a.sizes.size();
  require_rank(m, b, a.dim());
  std::vector<Expr> sizes = a.sizes;
  for (size_t i = 0; i + 2 < rank; ++i) require_equal(m, a.sizes[i], b.sizes[i]);
  require_equal(m, a.sizes[rank - 1], b.sizes[rank - 2]);
  sizes[rank - 1] = b.sizes[rank - 1];
  return contiguous_type(m.ctx(), a.dtype, a.device, sizes);
}

std::vector<TensorType> mm_meta(MetaContext& m) {
  require_rank(m, m.tensor(0), 2);
  return {product_type(m, m.tensor(0), m.tensor(1))};
}

std::vector<TensorType> bmm_meta(MetaContext& m) {
  require_rank(m, m.tensor(0), 3);
  return {product_type(m, m.tensor(0), m.tensor(1))};
}

MetaFn added_meta(int64_t rank) {
  return [=](MetaContext& m) -> std::vector<TensorType> {
    require_rank(m, m.tensor(1), rank);
    same_dtype(m, m.tensor(0), m.tensor(1));
    TensorType type = product_type(m, m.tensor(1), m.tensor(2));
    const std::vector<Expr>* shapes[] = {&m.tensor(0).sizes, &type.sizes};
    if (!same_sizes(m.ctx(), m.broadcast(shapes), type.sizes)) {
      throw InvalidArgument(str_cat(m.op().name, ": the first operand does not expand to the product's shape"));
    }
    return {type};
  };
}

std::vector<TensorType> mv_meta(MetaContext& m) {
  const TensorType& a = m.tensor(0);
  const TensorType& v = m.tensor(1);
  require_rank(m, a, 2);
  require_rank(m, v, 1);
  same_dtype(m, a, v);
  require_equal(m, a.sizes[1], v.sizes[0]);
  return {contiguous_type(m.ctx(), a.dtype, a.device, {a.sizes[0]})};
}

std::vector<TensorType> dot_meta(MetaContext& m) {
  const TensorType& a = m.tensor(0);
  const TensorType& b = m.tensor(1);
  require_rank(m, a, 1);
  require_rank(m, b, 1);
  same_dtype(m, a, b);
  require_equal(m, a.sizes[0], b.sizes[0]);
  return {contiguous_type(m.ctx(), a.dtype, a.device, {})};
}

/// beta * self + alpha * product, where the sum may fuse with what follows. Half precision keeps the host's fused form,
/// which rounds once; so does integer arithmetic.
DecomposeFn added_decompose(const char* product) {
  return [=](GraphBuilder& b, std::span<const Arg> arguments) -> Values {
    const Args args(b, arguments);
    const DType dtype = args.type(1).dtype;
    if (dtype != DType::kFloat32 && dtype != DType::kFloat64) return {};
    // On a GPU the product adds as it stores.
    if (args.type(1).device.kind == DeviceKind::kCuda) return {};
    // A factor of zero hides what is infinite or NaN where the host leaves that part out.
    if (is_factor(args[3], 0) || is_factor(args[4], 0)) return {};
    return {product_sum(b, b.op(product, {arguments[1], arguments[2]}), args.tensor(0), args[3], args[4])};
  };
}

// ---- matmul, linear --------------------------------------------------------------------------------------------------

std::vector<Expr> joined(std::vector<Expr> batch, std::initializer_list<Expr> rest) {
  batch.insert(batch.end(), rest);
  return batch;
}

/// All dimensions but the last as one.
ValueId fold_rows(GraphBuilder& b, ValueId x) {
  const TensorType& type = b.type(x);
  if (type.dim() == 2) return x;
  const Expr rows = product(b.ctx(), std::span(type.sizes).first(type.sizes.size() - 1));
  return b.reshape(x, {rows, type.sizes.back()});
}

ValueId matmul(GraphBuilder& b, ValueId x, ValueId y) {
  ExprContext& ctx = b.ctx();
  const TensorType tx = b.type(x);
  const TensorType ty = b.type(y);
  const size_t rx = tx.sizes.size();
  const size_t ry = ty.sizes.size();
  if (rx == 0 || ry == 0) throw InvalidArgument("both arguments to matmul need to be at least 1D");
  if (tx.dtype != ty.dtype) throw InvalidArgument("expected both operands of matmul to have the same dtype");
  if (rx == 1 && ry == 1) return b.binary("dot", x, y);
  if (rx == 2 && ry == 1) return b.binary("mv", x, y);
  if (rx == 1 && ry == 2) return b.squeeze(b.binary("mm", b.unsqueeze(x, 0), y), 0);
  if (rx == 2 && ry == 2) return b.binary("mm", x, y);
  if (ry <= 2) {
    // [..., n, k] x [k(, m)]: one product with the batch folded into the rows.
    std::vector<Expr> sizes(tx.sizes.begin(), tx.sizes.end() - 1);
    const ValueId folded = fold_rows(b, x);
    if (ry == 1) return b.reshape(b.binary("mv", folded, y), sizes);
    sizes.push_back(ty.sizes[1]);
    return b.reshape(b.binary("mm", folded, y), sizes);
  }
  const ValueId left = rx == 1 ? b.unsqueeze(x, 0) : x;
  const ValueId right = y;
  const std::vector<Expr> sx = b.type(left).sizes;
  const std::vector<Expr> sy = b.type(right).sizes;
  const std::vector<Expr> bx(sx.begin(), sx.end() - 2);
  const std::vector<Expr> by(sy.begin(), sy.end() - 2);
  std::vector<Expr> batch(std::max(bx.size(), by.size()));
  for (size_t i = 0; i < batch.size(); ++i) {
    const size_t from_end = batch.size() - i;
    const Expr a = from_end <= bx.size() ? bx[bx.size() - from_end] : ctx.constant(1);
    const Expr c = from_end <= by.size() ? by[by.size() - from_end] : ctx.constant(1);
    if (is_one(ctx, a)) {
      batch[i] = c;
    } else if (is_one(ctx, c) || same_size(ctx, a, c)) {
      batch[i] = a;
    } else {
      throw InvalidArgument(str_cat("The size of tensor a (", a.str(), ") must match the size of tensor b (", c.str(),
                                    ") at non-singleton dimension ", i));
    }
  }
  const Expr n = sx[sx.size() - 2];
  const Expr k = sx.back();
  const Expr m = sy.back();
  const Expr count = product(ctx, batch);
  const ValueId a3 = b.reshape(b.expand(left, joined(batch, {n, k})), {count, n, k});
  const ValueId c3 = b.reshape(b.expand(right, joined(batch, {sy[sy.size() - 2], m})), {count, sy[sy.size() - 2], m});
  const ValueId out = b.binary("bmm", a3, c3);
  return rx == 1 ? b.reshape(out, joined(batch, {m})) : b.reshape(out, joined(batch, {n, m}));
}

Values decompose_matmul(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  return {matmul(b, args.tensor(0), args.tensor(1))};
}

Values decompose_rmatmul(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  return {matmul(b, args.tensor(1), args.tensor(0))};
}

std::vector<TensorType> linear_meta(MetaContext& m) {
  const TensorType& x = m.tensor(0);
  const TensorType& w = m.tensor(1);
  if (w.dim() != 2 || x.dim() == 0) throw Unsupported("linear with such ranks runs in eager");
  same_dtype(m, x, w);
  require_equal(m, x.sizes.back(), w.sizes[1]);
  std::vector<Expr> sizes = x.sizes;
  sizes.back() = w.sizes[0];
  if (!m.is_none(2)) {
    same_dtype(m, x, m.tensor(2));
    const std::vector<Expr>* shapes[] = {&sizes, &m.tensor(2).sizes};
    if (!same_sizes(m.ctx(), m.broadcast(shapes), sizes)) throw InvalidArgument("linear: the bias does not fit");
  }
  return {contiguous_type(m.ctx(), x.dtype, x.device, sizes)};
}

Values decompose_linear(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  ValueId x = args.tensor(0);
  const ValueId w = b.permute(args.tensor(1), {1, 0});
  std::vector<Expr> sizes = b.type(x).sizes;
  sizes.back() = b.type(w).sizes[1];
  if (b.type(x).dim() == 1) x = b.unsqueeze(x, 0);
  x = fold_rows(b, x);
  const DType dtype = b.type(x).dtype;
  const bool fuse = dtype == DType::kFloat32 || dtype == DType::kFloat64 || args.none(2);
  if (!fuse && args.type(2).dim() <= 1) {
    return {b.reshape(b.op("addmm", {arguments[2], TensorArg{x}, TensorArg{w}}), sizes)};
  }
  const ValueId y = b.reshape(b.binary("mm", x, w), sizes);
  return {args.none(2) ? y : b.binary("add", y, args.tensor(2))};
}

Values decompose_outer(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  if (args.rank(0) != 1 || args.rank(1) != 1) throw InvalidArgument("outer: expected 1-D tensors");
  return {b.binary("mul", b.unsqueeze(args.tensor(0), 1), args.tensor(1))};
}

Values decompose_tensordot(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  ExprContext& ctx = b.ctx();
  ValueId x = args.tensor(0);
  ValueId y = args.tensor(1);
  const TensorType tx = b.type(x);
  const TensorType ty = b.type(y);
  std::vector<int64_t> dx = args.integers(2);
  std::vector<int64_t> dy = args.integers(3);
  if (dx.size() != dy.size()) throw InvalidArgument("both dimension lists should have same length");
  Expr inner = ctx.constant(1);
  for (size_t i = 0; i < dx.size(); ++i) {
    dx[i] = wrap_real_dim(dx[i], tx.dim());
    dy[i] = wrap_real_dim(dy[i], ty.dim());
    const Expr a = tx.sizes[static_cast<size_t>(dx[i])];
    const Expr c = ty.sizes[static_cast<size_t>(dy[i])];
    if (!same_size(ctx, a, c)) throw Unsupported("tensordot with broadcast dimensions runs in eager");
    inner = ctx.mul(inner, a);
  }
  const auto free_dims = [](const TensorType& t, const std::vector<int64_t>& used) {
    std::vector<int64_t> rest;
    for (int64_t d = 0; d < t.dim(); ++d) {
      if (std::find(used.begin(), used.end(), d) == used.end()) rest.push_back(d);
    }
    return rest;
  };
  const std::vector<int64_t> fx = free_dims(tx, dx);
  const std::vector<int64_t> fy = free_dims(ty, dy);
  std::vector<Expr> sizes;
  Expr rows = ctx.constant(1);
  Expr columns = ctx.constant(1);
  for (int64_t d : fx) {
    sizes.push_back(tx.sizes[static_cast<size_t>(d)]);
    rows = ctx.mul(rows, sizes.back());
  }
  for (int64_t d : fy) {
    sizes.push_back(ty.sizes[static_cast<size_t>(d)]);
    columns = ctx.mul(columns, sizes.back());
  }
  std::vector<int64_t> px = fx;
  px.insert(px.end(), dx.begin(), dx.end());
  std::vector<int64_t> py = dy;
  py.insert(py.end(), fy.begin(), fy.end());
  x = b.reshape(b.permute(x, px), {rows, inner});
  y = b.reshape(b.permute(y, py), {inner, columns});
  return {b.reshape(b.binary("mm", x, y), sizes)};
}

// ---- einsum ----------------------------------------------------------------------------------------------------------

/// Product of two tensors of equal rank summed over `sum_dims` (kept as size 1), by one batched product over dimensions
/// sorted into: in both and kept, left only, summed, right only.
ValueId sum_product(GraphBuilder& b, ValueId left, ValueId right, const std::vector<int64_t>& sum_dims) {
  if (sum_dims.empty()) return b.binary("mul", left, right);
  ExprContext& ctx = b.ctx();
  const auto size = [&](ValueId x, int64_t d) { return b.type(x).sizes[static_cast<size_t>(d)]; };
  const int64_t rank = b.type(left).dim();
  std::vector<int64_t> both;
  std::vector<int64_t> only_left;
  std::vector<int64_t> only_right;
  Expr n_both = ctx.constant(1);
  Expr n_left = n_both;
  Expr n_right = n_both;
  Expr n_sum = n_both;
  for (int64_t d = 0; d < rank; ++d) {
    const bool in_left = !is_one(ctx, size(left, d));
    const bool in_right = !is_one(ctx, size(right, d));
    if (std::find(sum_dims.begin(), sum_dims.end(), d) != sum_dims.end()) {
      if (in_left && in_right) {
        if (!same_size(ctx, size(left, d), size(right, d))) throw InvalidArgument("einsum: sizes do not match");
        n_sum = ctx.mul(n_sum, size(left, d));
      } else if (in_left) {
        left = b.reduce("sum", left, {d}, true);
      } else if (in_right) {
        right = b.reduce("sum", right, {d}, true);
      }
    } else if (in_left && in_right) {
      if (!same_size(ctx, size(left, d), size(right, d))) throw InvalidArgument("einsum: sizes do not match");
      both.push_back(d);
      n_both = ctx.mul(n_both, size(left, d));
    } else if (in_left) {
      only_left.push_back(d);
      n_left = ctx.mul(n_left, size(left, d));
    } else {
      only_right.push_back(d);
      n_right = ctx.mul(n_right, size(right, d));
    }
  }
  // Eager multiplies the other way round where the result has the right operand's dimensions before the left one's.
  if (!only_left.empty() && !only_right.empty() && only_right.back() < only_left.front()) {
    std::swap(left, right);
    std::swap(only_left, only_right);
    std::swap(n_left, n_right);
  }
  const auto chain = [](std::initializer_list<const std::vector<int64_t>*> parts) {
    std::vector<int64_t> all;
    for (const auto* part : parts) all.insert(all.end(), part->begin(), part->end());
    return all;
  };
  std::vector<Expr> out_sizes;
  for (int64_t d : both) out_sizes.push_back(size(left, d));
  for (int64_t d : only_left) out_sizes.push_back(size(left, d));
  for (size_t i = 0; i < sum_dims.size(); ++i) out_sizes.push_back(ctx.constant(1));
  for (int64_t d : only_right) out_sizes.push_back(size(right, d));
  const std::vector<int64_t> left_order = chain({&both, &only_left, &sum_dims, &only_right});
  const std::vector<int64_t> right_order = chain({&both, &sum_dims, &only_right, &only_left});
  std::vector<int64_t> out_order(static_cast<size_t>(rank));
  for (size_t i = 0; i < left_order.size(); ++i)
    out_order[static_cast<size_t>(left_order[i])] = static_cast<int64_t>(i);
  const ValueId l3 = b.reshape(b.permute(left, left_order), {n_both, n_left, n_sum});
  const ValueId r3 = b.reshape(b.permute(right, right_order), {n_both, n_sum, n_right});
  return b.permute(b.reshape(b.binary("bmm", l3, r3), out_sizes), out_order);
}

/// Labels of one operand: a letter, or '.' for each dimension of the ellipsis.
struct Subscripts {
  std::vector<std::vector<char>> operands;
  std::vector<char> output;
  bool has_output = false;
};

std::vector<char> parse_labels(std::string_view text, int64_t rank, int64_t* ellipsis) {
  // `rank` < 0: the output, whose ellipsis is as long as the operands'.
  std::vector<char> labels;
  int64_t at = -1;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if (c == '.') {
      if (text.substr(i, 3) != "..." || at >= 0) throw InvalidArgument("einsum(): bad ellipsis");
      at = static_cast<int64_t>(labels.size());
      i += 2;
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      labels.push_back(c);
    } else {
      throw InvalidArgument("einsum(): subscripts must be in [a-zA-Z]");
    }
  }
  int64_t covered = rank < 0 ? *ellipsis : rank - static_cast<int64_t>(labels.size());
  if (covered < 0 || (at < 0 && rank >= 0 && covered != 0)) {
    throw InvalidArgument("einsum(): the number of subscripts does not match the operand's rank");
  }
  if (at >= 0) {
    labels.insert(labels.begin() + at, static_cast<size_t>(covered), '.');
    *ellipsis = std::max(*ellipsis, covered);
  }
  return labels;
}

Subscripts parse_equation(std::string_view equation, std::span<const int64_t> ranks, int64_t* ellipsis) {
  Subscripts s;
  const size_t arrow = equation.find("->");
  std::string_view inputs = equation.substr(0, arrow);
  *ellipsis = 0;
  for (int64_t rank : ranks) {
    const size_t comma = inputs.find(',');
    s.operands.push_back(parse_labels(inputs.substr(0, comma), rank, ellipsis));
    inputs = comma == std::string_view::npos ? std::string_view() : inputs.substr(comma + 1);
  }
  if (arrow != std::string_view::npos) {
    s.has_output = true;
    s.output = parse_labels(equation.substr(arrow + 2), -1, ellipsis);
  }
  return s;
}

/// Places of the dimensions in an order that all operands are brought into: the output's, then those that are summed, by letter
/// (upper case first).
struct CommonOrder {
  std::array<int64_t, 128> position{};  // of each label, -1 for none
  int64_t ellipsis_at = -1;
  int64_t out_rank = 0;
  int64_t rank = 0;
};

CommonOrder common_order(const Subscripts& s, int64_t ellipsis) {
  std::array<int, 128> count{};
  for (const auto& labels : s.operands) {
    std::array<bool, 128> seen{};
    for (char c : labels) {
      if (c == '.') continue;
      if (seen[static_cast<size_t>(c)]) throw Unsupported("einsum with a repeated subscript runs in eager");
      seen[static_cast<size_t>(c)] = true;
      ++count[static_cast<size_t>(c)];
    }
  }
  CommonOrder order;
  std::array<int64_t, 128>& position = order.position;
  position.fill(-1);
  int64_t next = 0;
  int64_t& ellipsis_at = order.ellipsis_at;
  if (s.has_output) {
    for (char c : s.output) {
      if (c == '.') {
        if (ellipsis_at < 0) ellipsis_at = next;
        ++next;
      } else {
        if (position[static_cast<size_t>(c)] >= 0 || count[static_cast<size_t>(c)] == 0) {
          throw InvalidArgument("einsum(): bad output subscripts");
        }
        position[static_cast<size_t>(c)] = next++;
      }
    }
  } else {
    ellipsis_at = 0;
    next = ellipsis;
    for (size_t c = 'A'; c <= 'z'; ++c) {
      if (count[c] == 1) position[c] = next++;
    }
  }
  if (ellipsis > 0 && ellipsis_at < 0) throw Unsupported("einsum that sums over an ellipsis runs in eager");
  order.out_rank = next;
  for (size_t c = 'A'; c <= 'z'; ++c) {
    if (count[c] > 0 && position[c] < 0) position[c] = next++;
  }
  order.rank = next;
  return order;
}

/// The operand with its dimensions in the common order, and ones where it has none.
ValueId in_order(GraphBuilder& b, ValueId v, const std::vector<char>& labels, const CommonOrder& order,
                 int64_t ellipsis) {
  std::vector<int64_t> source(static_cast<size_t>(order.rank), -1);
  const int64_t dots = std::count(labels.begin(), labels.end(), '.');
  int64_t dot = 0;
  for (size_t d = 0; d < labels.size(); ++d) {
    const int64_t to =
        labels[d] == '.' ? order.ellipsis_at + ellipsis - dots + dot++ : order.position[static_cast<size_t>(labels[d])];
    source[static_cast<size_t>(to)] = static_cast<int64_t>(d);
  }
  std::vector<int64_t> kept;
  for (int64_t d : source) {
    if (d >= 0) kept.push_back(d);
  }
  v = b.permute(v, kept);
  for (int64_t d = 0; d < order.rank; ++d) {
    if (source[static_cast<size_t>(d)] < 0) v = b.unsqueeze(v, d);
  }
  return v;
}

Values decompose_einsum(GraphBuilder& b, std::span<const Arg> arguments) {
  const Args args(b, arguments);
  ExprContext& ctx = b.ctx();
  Values ops = args.tensors(1);
  if (ops.size() < 2) throw Unsupported("einsum of one operand (it may be a view) runs in eager");
  std::vector<int64_t> ranks;
  for (ValueId v : ops) ranks.push_back(b.type(v).dim());
  const std::string equation = args.str(0);
  if (std::count(equation.begin(), equation.end(), ',') != static_cast<int64_t>(ops.size()) - 1) {
    throw InvalidArgument("einsum(): more operands or fewer than in the equation");
  }
  int64_t ellipsis = 0;
  const Subscripts s = parse_equation(equation, ranks, &ellipsis);
  const CommonOrder order = common_order(s, ellipsis);
  const int64_t rank = order.rank, out_rank = order.out_rank;
  for (size_t i = 0; i < ops.size(); ++i) ops[i] = in_order(b, ops[i], s.operands[i], order, ellipsis);
  // Left to right; a dimension is summed as soon as no later operand has it.
  const auto nontrivial = [&](ValueId v, int64_t d) { return !is_one(ctx, b.type(v).sizes[static_cast<size_t>(d)]); };
  std::vector<int> uses(static_cast<size_t>(rank), 0);
  for (int64_t d = 0; d < rank; ++d) {
    for (ValueId v : ops) uses[static_cast<size_t>(d)] += nontrivial(v, d) ? 1 : 0;
  }
  const std::vector<int64_t> path = args.integers(2);
  size_t step = 0;
  while (ops.size() > 1) {
    size_t i = 0;
    size_t j = 1;
    if (!path.empty()) {
      i = static_cast<size_t>(path.at(step++));
      j = static_cast<size_t>(path.at(step++));
      if (j < i) std::swap(i, j);
    }
    ValueId x = ops.at(i);
    ValueId y = ops.at(j);
    ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(j));
    ops.erase(ops.begin() + static_cast<std::ptrdiff_t>(i));
    std::vector<int64_t> sum;
    std::vector<int64_t> sum_x;
    std::vector<int64_t> sum_y;
    for (int64_t d = out_rank; d < rank; ++d) {
      int& left = uses[static_cast<size_t>(d)];
      const bool in_x = nontrivial(x, d);
      const bool in_y = nontrivial(y, d);
      if (in_x && in_y) {
        if (--left == 1) {
          sum.push_back(d);
          left = 0;
        }
      } else if (left == 1 && (in_x || in_y)) {
        (in_x ? sum_x : sum_y).push_back(d);
        left = 0;
      }
    }
    if (!sum_x.empty()) x = b.reduce("sum", x, sum_x, true);
    if (!sum_y.empty()) y = b.reduce("sum", y, sum_y, true);
    const ValueId joint = sum_product(b, x, y, sum);
    ops.insert(path.empty() ? ops.begin() : ops.end(), joint);
  }
  ValueId result = ops[0];
  for (int64_t d = rank - 1; d >= out_rank; --d) result = b.squeeze(result, d);
  return {result};
}

OpDef host(const OpRow& row, MetaFn meta, const char* overload, DecomposeFn decompose = nullptr) {
  OpDef def = make_op(row, std::move(meta), std::move(decompose));
  def.host_overload = overload;
  return def;
}

}  // namespace

void register_linear(OpRegistry& r) {
  const auto kind = OpKind::kHost;
  const auto composite = OpKind::kComposite;
  r.add(host({"mm", kind, "(Tensor self, Tensor mat2) -> Tensor", "torch.mm torch.Tensor.mm"}, mm_meta, "out"));
  r.add(host({"bmm", kind, "(Tensor self, Tensor mat2) -> Tensor", "torch.bmm torch.Tensor.bmm"}, bmm_meta, "out"));
  r.add(host({"mv", kind, "(Tensor self, Tensor vec) -> Tensor", "torch.mv torch.Tensor.mv"}, mv_meta, "out"));
  r.add(host({"dot", kind, "(Tensor self, Tensor tensor) -> Tensor", "torch.dot torch.Tensor.dot"}, dot_meta, "out"));
  const char* addmm = "(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor";
  r.add(host({"addmm", kind, addmm, "torch.addmm torch.Tensor.addmm", "torch.Tensor.addmm_"}, added_meta(2), "out",
             added_decompose("mm")));
  const char* baddbmm = "(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor";
  r.add(host({"baddbmm", kind, baddbmm, "torch.baddbmm torch.Tensor.baddbmm", "torch.Tensor.baddbmm_"}, added_meta(3),
             "out", added_decompose("bmm")));
  for (const char* name : {"addmm", "baddbmm"}) {
    r.take_value(name, "beta", {.apart = 0.0});  // which leaves self out
    r.take_value(name, "alpha", {.apart = 0.0});
  }
  OpDef matmul_def = make_op({"matmul", composite, "(Tensor self, Tensor other) -> Tensor",
                              "torch.matmul torch.Tensor.matmul torch.Tensor.__matmul__ torch.linalg.matmul"},
                             nullptr, decompose_matmul);
  r.add(std::move(matmul_def));
  r.add(make_op({"rmatmul", composite, "(Tensor self, Tensor other) -> Tensor", "torch.Tensor.__rmatmul__"}, nullptr,
                decompose_rmatmul));
  r.add(make_op(
      {"linear", composite, "(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", "torch._C._nn.linear"},
      linear_meta, decompose_linear));
  r.add(make_op({"outer", composite, "(Tensor self, Tensor vec2) -> Tensor",
                 "torch.outer torch.Tensor.outer torch.ger torch.Tensor.ger"},
                nullptr, decompose_outer));
  r.add(make_op({"tensordot", composite, "(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor",
                 "torch._C._VariableFunctions.tensordot"},
                nullptr, decompose_tensordot));
  r.add(make_op({"einsum", composite, "(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor",
                 "torch._C._VariableFunctions.einsum"},
                nullptr, decompose_einsum));
}

}  // namespace tatara
