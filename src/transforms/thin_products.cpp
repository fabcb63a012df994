// Products of a matrix with a few rows (a model that answers one question at a time): the matrix is read once, so its bytes are the
// cost. Such a product becomes a reduction, in whose loops the matrix is computed from what it comes from: a quantised weight is
// never there as a whole.
#include <algorithm>
#include <optional>
#include <set>

#include "loops/kernel.h"
#include "ops/core/builder.h"
#include "ops/core/family_util.h"
#include "ops/core/op_def.h"
#include "ops/linear/product_sum.h"
#include "transforms/pass.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

constexpr int64_t kMostRows = 8;
constexpr int64_t kLeastOuter = 16;       // results of a row, and
constexpr int64_t kLeastInner = 32;       // products of a result, below which loops are not worth it
constexpr int64_t kLeastElements = 4096;  // of the matrix
constexpr size_t kMostPacked = 8;         // into which packing divides what is summed over
constexpr int64_t kMostInBlocks = 32;     // rows
constexpr int64_t kLeastBlock = 5;
constexpr double kMuchLess = 0.7;         // of the matrix's bytes, for what computes it
constexpr int64_t kLeastPlain = 1 << 18;  // elements of a weight that is not computed
constexpr int64_t kMostHalfRows = 4;      // for which ours are faster than the host's kernels for half types
constexpr int64_t kLeastApart = 4;        // rows that matter so much, where they are
constexpr int64_t kSetBytes = 1024;       // of this distance, or multiples of it,
constexpr int64_t kApart = 64;            // and are moved apart by so many bytes
constexpr int kMostNodes = 64;            // that compute the matrix
constexpr int64_t kMostWeighed = 64;      // rows, for which tensor cores multiply weights as they are computed, and
constexpr int64_t kMostUnpacked = 128;    // where weights are unpacked, which a kernel of its own takes longer for
constexpr int64_t kLeastAcross = 4;       // weights of a word, whose neighbours are of other results
constexpr int64_t kLeastWords = 4;        // that a thread of these computes at once, and four threads beside each other

int64_t known(Expr e) { return e.is_const() ? e.const_value() : 0; }

/// How a weight that is unpacked from fewer words divides what is summed over: into `parts` of `run` neighbours each, again and again.
struct Packing {
  int64_t parts = 1, run = 1;
  int64_t period() const { return parts * run; }
};

/// What computes the weight, up to inputs and results of other kernels.
class Chain {
 public:
  /// `across`: the last dim is the results', else what is summed over.
  Chain(const Graph& g, const std::vector<int>& uses, ValueId weight, bool across)
      : g_(g), uses_(uses), element_bytes_(dtype_size(g.type(weight).dtype)), across_(across) {
    walk(weight);
  }
  bool computed() const { return computed_; }
  /// Of what it comes from, what is not narrower than its elements: scales, but no quantised weight.
  double wide_bytes() const { return bytes_; }
  Packing packing(int64_t inner) const {
    for (const Packing& p : packings_) {
      if (p.parts <= static_cast<int64_t>(kMostPacked) && inner % p.period() == 0) return p;
    }
    return {};
  }

 private:
  bool fuses(const Node& node) const {
    switch (node.op->kind) {
      case OpKind::kPointwise:
      case OpKind::kView:
      case OpKind::kCreation: return true;
      case OpKind::kIndexing: return node.op->name == "index" || node.op->name == "embedding";
      case OpKind::kReduction:
      case OpKind::kScan:
      case OpKind::kRandom:
      case OpKind::kComposite:
      case OpKind::kHost: return false;
    }
    return false;
  }

  void walk(ValueId v) {
    if (!seen_.insert(v).second) return;
    const Node* node = g_.producer(v);
    const bool alone = node != nullptr && (node->op->kind == OpKind::kView || uses_[static_cast<size_t>(v)] == 1);
    if (node == nullptr || !fuses(*node) || !alone || ++nodes_ > kMostNodes) {
      const TensorType& type = g_.type(v);
      if (!is_floating(type.dtype) || dtype_size(type.dtype) < element_bytes_) return;
      double elements = 1;
      for (const Expr e : type.sizes) elements *= static_cast<double>(known(e));
      bytes_ += elements * dtype_size(type.dtype);
      return;
    }
    computed_ = computed_ || node->op->kind != OpKind::kView;
    find_packing(*node);
    for_each_operand(*node, [&](ValueId operand) { walk(operand); });
  }

  void find_packing(const Node& node) {
    const TensorType& out = g_.type(node.outputs[0]);
    if (node.op->kind != OpKind::kPointwise || out.sizes.empty()) return;
    if (node.op->name == "cat") {
      const auto& list = std::get<TensorList>(node.args[0]).values;
      const auto* given = std::get_if<Scalar>(&node.args[1]);
      const auto* dim = given == nullptr ? nullptr : std::get_if<int64_t>(given);
      if (dim == nullptr || list.empty()) return;
      const auto d = static_cast<size_t>(*dim < 0 ? *dim + out.dim() : *dim);
      int64_t run = 1;
      for (size_t i = d; i < out.sizes.size(); ++i) run *= known(g_.type(list[0]).sizes[i]);
      const bool even = std::all_of(list.begin(), list.end(),
                                    [&](ValueId v) { return g_.type(v).sizes[d] == g_.type(list[0]).sizes[d]; });
      if (even && run > 0) packings_.push_back({static_cast<int64_t>(list.size()), run});
      return;
    }
    // Words beside each of which several shifts stand.
    if (out.sizes.size() < (across_ ? 3 : 2)) return;
    const size_t d = out.sizes.size() - (across_ ? 2 : 1);
    const int64_t last = known(out.sizes[d]);
    bool spread = false;
    for_each_operand(node, [&](ValueId v) {
      const TensorType& type = g_.type(v);
      const bool words = is_integral(type.dtype) && type.dim() == out.dim();
      spread = spread || (words && (type.sizes[d].is_const(1) || type.strides[d].is_const(0)));
    });
    if (spread && last > 1 && last <= static_cast<int64_t>(kMostPacked)) packings_.push_back({last, 1});
  }

  const Graph& g_;
  const std::vector<int>& uses_;
  const int64_t element_bytes_;
  const bool across_;
  std::set<ValueId> seen_;
  std::vector<Packing> packings_;
  double bytes_ = 0;
  int nodes_ = 0;
  bool computed_ = false;
};

/// A product that becomes a reduction: `weight` is seen as [outer, inner], `rows` as [rows, inner].
struct Thin {
  ProductArgs form;
  bool weight_left = false;  // [outer, inner] x [inner, rows]
  bool across = false;       // neighbours in the weight are of other results, not summed: lanes lie along results
  bool weighed = false;      // by tensor cores
  Expr rows = {};
  int64_t outer = 1, inner = 1;
  Packing packing = {};
};

/// Whether neighbours along what is summed over lie side by side.
bool along(const TensorType& type, size_t dim) { return type.strides[dim].is_const(1); }

bool is_block(int64_t rows, const TensorType& type) {
  // The host multiplies bfloat16 faster.
  return rows > 0 && rows <= (type.dtype == DType::kBFloat16 ? kMostInBlocks / 2 : kMostInBlocks);
}

/// Up to eight rows, or on a CPU some more that are blocks of at least kLeastBlock: computing the weight for each block takes less time
/// than to write and to read it.
bool in_blocks(int64_t rows, const TensorType& type) {
  if (rows <= kMostRows) return rows > 0;
  if (type.device.kind == DeviceKind::kCuda || !is_block(rows, type)) return false;
  for (int64_t block = kMostRows; block >= kLeastBlock; --block) {
    if (rows % block == 0) return true;
  }
  return false;
}

/// A number of rows that varies is decided by what was first seen: many rows are many in later calls of this plan, and of few rows
/// each number has a plan of its own. Up to `most` any number may come in a plan for several.
bool are_few(ExprContext& ctx, Expr rows, int64_t most) {
  if (rows.is_const()) return true;
  const std::optional<int64_t> seen = ctx.evaluate_hint(rows);
  if (!seen || *seen < 1) return false;
  if (*seen > kMostRows) {
    static_cast<void>(ctx.guard(ctx.lt(ctx.constant(kMostRows), rows)));
    if (most <= kMostRows) return false;
    const bool some = *seen <= most;
    static_cast<void>(ctx.guard(some ? ctx.le(rows, ctx.constant(most)) : ctx.lt(ctx.constant(most), rows)));
    return some;
  }
  static_cast<void>(ctx.specialize(rows));
  return true;
}

/// Whether a weight as it is takes less time than the host's kernels need, by measurements of bench/thin_products.py: these read float32
/// at half of the memory's rate from two rows on, float16 at less, and bfloat16 at half of it for one row.
bool beats_host(const Thin& thin, const TensorType& weight) {
  if (weight.device.kind == DeviceKind::kCuda || !thin.rows.is_const() || thin.form.vector) return false;
  if (thin.outer * thin.inner < kLeastPlain) return false;
  const int64_t rows = thin.rows.const_value();
  if (rows > kMostRows) return false;
  if (weight.dtype == DType::kFloat32 || weight.dtype == DType::kFloat16) return rows >= 2;
  return weight.dtype == DType::kBFloat16 && rows <= kMostHalfRows;
}

/// Whether tensor cores may multiply the weight as it is computed: what a thread has of a part are neighbours.
bool can_weigh(const TensorType& a, const TensorType& b, const Thin& thin, const PassOptions& options) {
  if (options.product_processors == 0 || a.device.kind != DeviceKind::kCuda || thin.weight_left || thin.form.vector)
    return false;
  const Packing& p = thin.packing;
  const int64_t parts = p.parts, words = thin.inner / parts;
  // Across, threads read single words: of those that hold many weights they are few.
  return is_low_precision(a.dtype) && a.dtype == b.dtype && words % (4 * kLeastWords) == 0 &&
         (!thin.across || parts >= kLeastAcross) && (parts == 1 || p.run == 1 || p.run % kLeastWords == 0);
}

std::optional<Thin> thin_product(const Graph& g, const std::vector<int>& uses, const Node& node,
                                 const PassOptions& options) {
  const std::optional<ProductArgs> form = product_args(node);
  if (!form || form->batched) return std::nullopt;
  const auto* left = std::get_if<TensorArg>(&node.args[form->left]);
  const auto* right = std::get_if<TensorArg>(&node.args[form->left + 1]);
  if (left == nullptr || right == nullptr) return std::nullopt;
  const TensorType &a = g.type(left->value), &b = g.type(right->value);
  if (!is_floating(a.dtype) || dtype_size(a.dtype) < 2) return std::nullopt;
  if (form->added && is_factor(node.args[4], 0)) return std::nullopt;
  Thin thin{.form = *form};
  thin.inner = known(a.sizes[1]);
  const Expr first = a.sizes[0], second = form->vector ? g.ctx().constant(1) : b.sizes[1];
  thin.weight_left = first.is_const() && (!second.is_const() || second.const_value() < first.const_value());
  thin.rows = thin.weight_left ? second : first;
  thin.outer = known(thin.weight_left ? first : second);
  if (thin.inner < kLeastInner || thin.outer < kLeastOuter || thin.outer * thin.inner < kLeastElements)
    return std::nullopt;
  thin.across = !along(thin.weight_left ? a : b, thin.weight_left ? 1 : 0);
  if (thin.across && (form->vector || thin.weight_left || !along(b, 1))) return std::nullopt;
  const bool on_gpu = a.device.kind == DeviceKind::kCuda;
  const Chain chain(g, uses, thin.weight_left ? left->value : right->value, thin.across);
  if (!thin.across || on_gpu) thin.packing = chain.packing(thin.inner);
  thin.weighed = can_weigh(a, b, thin, options);
  if (thin.across && on_gpu && !thin.weighed) return std::nullopt;
  const int64_t most = !thin.weighed ? kMostRows : thin.packing.parts > 1 ? kMostUnpacked : kMostWeighed;
  const bool known_rows = thin.rows.is_const();
  const int64_t count = known_rows ? thin.rows.const_value() : 0;
  if (known_rows && !(count > 0 && count <= most) && !(thin.across ? is_block(count, a) : in_blocks(count, a)))
    return std::nullopt;
  const bool blocks = thin.weighed || (known_rows && count > kMostRows);
  const double matrix = static_cast<double>(thin.outer * thin.inner) * dtype_size(a.dtype);
  // Blocks read again what computes the matrix: that has to be much less, as of a quantised weight.
  const bool computed = chain.computed() && (!blocks || chain.wide_bytes() <= kMuchLess * matrix);
  if (!computed && (thin.across || !(options.thin_weights && beats_host(thin, b)))) return std::nullopt;
  if (!are_few(g.ctx(), thin.rows, most)) return std::nullopt;
  return thin;
}

/// Writes one product as a reduction.
class Writer {
 public:
  Writer(GraphCopy& copy, const std::vector<int>& uses, const Node& node, const Thin& thin)
      : copy_(copy), uses_(uses), b_(copy.to()), node_(node), thin_(thin) {
    b_.set_location(node.location);
  }

  ValueId run(const std::vector<Arg>& args, const TensorType& type) {
    const DType wide = compute_dtype(type.dtype);
    ValueId weight =
        widened(std::get<TensorArg>(node_.args[thin_.form.left + (thin_.weight_left ? 0 : 1)]).value, wide);
    ValueId rows = std::get<TensorArg>(args[thin_.form.left + (thin_.weight_left ? 1 : 0)]).value;
    if (thin_.weighed) return weighed(args, rows, weight, type);
    if (thin_.across) return across(args, rows, weight, type);
    if (thin_.form.vector) rows = b_.unsqueeze(rows, 1);
    (thin_.weight_left ? rows : weight) = b_.permute(thin_.weight_left ? rows : weight, {1, 0});
    TensorList row_parts = parts_of(b_.cast(rows, wide), thin_.rows, thin_.weight_left ? 0 : 1, true);
    TensorList weight_parts = parts_of(weight, number(thin_.outer), thin_.weight_left ? 1 : 0, false);
    const int64_t few = thin_.weight_left ? 1 : 0;
    ValueId result = b_.op("thin_product", {row_parts, weight_parts, Scalar(few)});
    if (thin_.form.vector) result = b_.squeeze(result, 1);
    if (thin_.form.added) result = with_sum(args, result, wide);
    return b_.cast(result, type.dtype);
  }

 private:
  Expr number(int64_t n) { return b_.ctx().constant(n); }

  ValueId across(const std::vector<Arg>& args, ValueId rows, ValueId weight, const TensorType& type) {
    const DType wide = compute_dtype(type.dtype);
    const std::vector<Expr> sizes{thin_.rows, number(thin_.outer), number(thin_.inner)};
    rows = b_.cast(rows, wide);
    if (!b_.type(rows).strides.back().is_const(1)) rows = ops::contiguous_copy(b_, rows);
    rows = b_.expand(b_.unsqueeze(rows, 1), sizes);
    weight = b_.expand(b_.unsqueeze(b_.permute(weight, {1, 0}), 0), sizes);
    ValueId result = b_.op("cpu_product", {TensorArg{rows}, TensorArg{weight}, Scalar(true), Scalar(true)});
    if (thin_.form.added) result = with_sum(args, result, wide);
    return b_.cast(result, type.dtype);
  }

  ValueId weighed(const std::vector<Arg>& args, ValueId rows, ValueId weight, const TensorType& type) {
    const auto [parts, run] = std::pair{thin_.packing.parts, thin_.packing.run};
    weight = b_.permute(weight, {1, 0});
    TensorList list;
    if (parts == 1) {
      list.values.push_back(weight);
    } else {
      const int64_t periods = thin_.inner / (parts * run);
      weight = b_.reshape(weight, {number(thin_.outer), number(periods), number(parts), number(run)});
      for (int64_t i = 0; i < parts; ++i) {
        const ValueId part = b_.squeeze(b_.slice(weight, 2, number(i), number(i + 1), number(1)), 2);
        list.values.push_back(run == 1 ? b_.squeeze(part, 2) : part);
      }
    }
    // Threads read 16 bytes at once.
    const std::vector<Expr>& strides = b_.type(rows).strides;
    const bool beside = strides[1].is_const(1) && strides[0].is_const() &&
                        strides[0].const_value() % loops::Product::Matrices::kAligned == 0;
    if (!beside) rows = ops::contiguous_copy(b_, rows);
    ValueId result = b_.op("weighed_product", {TensorArg{rows}, list, Scalar(parts == 1 ? int64_t{1} : run)});
    if (thin_.form.added) result = with_sum(args, result, compute_dtype(type.dtype));
    return b_.cast(result, type.dtype);
  }

  /// [count, inner], as many times as packing has parts: those elements that lie in each, expanded along dim `expanded` of the product.
  TensorList parts_of(ValueId v, Expr count, int64_t expanded, bool is_rows) {
    const auto [parts, run] = std::pair{thin_.packing.parts, thin_.packing.run};
    const int64_t periods = thin_.inner / (parts * run);
    TensorList list;
    if (parts > 1) {
      v = b_.reshape(v, {count, number(periods), number(parts), number(run)});
      if (is_rows) v = ops::contiguous_copy(b_, b_.permute(v, {2, 0, 1, 3}));
    }
    if (is_rows && !b_.type(v).strides.back().is_const(1)) v = ops::contiguous_copy(b_, v);
    if (is_rows) v = apart(v, parts * known_rows(), thin_.inner / parts);
    for (int64_t i = 0; i < parts; ++i) {
      ValueId part = v;
      if (parts > 1) {
        const int64_t dim = is_rows ? 0 : 2;
        part = b_.squeeze(b_.slice(v, dim, number(i), number(i + 1), number(1)), dim);
        if (run == 1) part = b_.squeeze(part, 2);
        if (periods == 1) part = b_.squeeze(part, 1);
      }
      part = b_.unsqueeze(part, expanded);
      std::vector<Expr> sizes = b_.type(part).sizes;
      sizes[static_cast<size_t>(expanded)] = is_rows ? number(thin_.outer) : thin_.rows;
      list.values.push_back(b_.expand(part, sizes));
    }
    return list;
  }

  int64_t known_rows() { return b_.ctx().range(thin_.rows).hi; }

  /// On a CPU: rows whose distance is a multiple of a page lie in the same few places of the nearest cache, which can't hold them all.
  /// Such rows are copied a little further apart.
  ValueId apart(ValueId v, int64_t count, int64_t length) {
    TensorType type = b_.type(v);
    if (type.device.kind == DeviceKind::kCuda || count < kLeastApart) return v;
    if (length * dtype_size(type.dtype) % kSetBytes != 0) return v;
    Expr stride = number(1);
    const size_t rank = type.sizes.size(), inside = rank == 4 ? 2 : 1;  // dims of a row
    std::vector<Expr> strides(rank);
    for (size_t d = rank; d-- > 0;) {
      strides[d] = stride;
      stride = b_.ctx().mul(stride, type.sizes[d]);
      if (d == rank - inside) stride = number(length + kApart / dtype_size(type.dtype));
    }
    return b_.op("relayout", {TensorArg{v}, SymInts{strides}});
  }

  ValueId with_sum(const std::vector<Arg>& args, ValueId result, DType wide) {
    if (is_factor(args[3], 0)) return product_sum(b_, result, kNoValue, args[3], args[4]);
    return product_sum(b_, result, b_.cast(std::get<TensorArg>(args[0]).value, wide), args[3], args[4]);
  }

  /// The value in the type in which products are summed: what computes it is not rounded to half types between its steps.
  ValueId widened(ValueId old, DType wide) {
    const Graph& g = copy_.from();
    const Node* node = g.producer(old);
    const bool half = is_low_precision(g.type(old).dtype);
    const bool alone = node != nullptr && (node->op->kind == OpKind::kView || uses_[static_cast<size_t>(old)] == 1);
    if (!half || !alone) return b_.cast(copy_[old], wide);
    const auto* first = node->args.empty() ? nullptr : std::get_if<TensorArg>(&node->args[0]);
    if (first == nullptr) return b_.cast(copy_[old], wide);
    const std::string& name = node->op->name;
    if (name == "cast") {
      const DType from = g.type(first->value).dtype;
      // Small integers and other half types are exact; what was computed in a wider type is rounded as the program says.
      const bool exact = is_integral(from) || from == DType::kBool || is_low_precision(from);
      return exact ? b_.cast(copy_[first->value], wide) : b_.cast(copy_[old], wide);
    }
    const bool arithmetic = name == "mul" || name == "add" || name == "sub" || name == "div";
    const bool same_view = node->op->kind == OpKind::kView && g.type(first->value).dtype == g.type(old).dtype;
    if (!arithmetic && !same_view) return b_.cast(copy_[old], wide);
    std::vector<Arg> args = copy_.args(*node);
    for (size_t i = 0; i < args.size(); ++i) {
      const auto* operand = std::get_if<TensorArg>(&node->args[i]);
      if (operand != nullptr && operand->value != kNoValue) args[i] = TensorArg{widened(operand->value, wide)};
    }
    return b_.call(*node->op, std::move(args)).at(0);
  }

  GraphCopy& copy_;
  const std::vector<int>& uses_;
  GraphBuilder b_;
  const Node& node_;
  const Thin& thin_;
};

}  // namespace

Graph thin_products(const Graph& graph, const PassOptions& options) {
  return run_pass("thin_products", graph, options, [&](const Graph& given) {
    const Graph g = join_unpacked_parts(given, kMostInBlocks);
    const std::vector<int> uses = g.use_counts();
    GraphCopy copy(g);
    for (const Node& node : g.nodes()) {
      const std::optional<Thin> thin = thin_product(g, uses, node, options);
      if (!thin) {
        copy.copy(node);
        continue;
      }
      const size_t first_new = copy.to().num_nodes();
      const TensorType& type = g.type(node.outputs[0]);
      const ValueId made = Writer(copy, uses, node, *thin).run(copy.args(node), type);
      copy.set(node.outputs[0], with_type(copy, made, type, first_new));
    }
    return copy.finish();
  });
}

}  // namespace tatara
