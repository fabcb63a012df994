// Runs operator definitions element by element, slowly and without code generation: result types from `meta`, values from
// `decompose` and `lower`. tests/ops/test_definitions.py loads this as a shared library and compares with eager, so that a
// wrong definition and a wrong kernel can be told apart.
#include <cmath>
#include <complex>
#include <cstring>
#include <map>
#include <sstream>

#include "ops/core/builder.h"
#include "ops/core/lowering.h"
#include "ops/core/op_def.h"
#include "support/error.h"

namespace tatara {
namespace {

/// One element: integers and bool in `i`, the rest in `c`.
struct Val {
  std::complex<double> c;
  int64_t i = 0;
};

bool holds_integer(DType t) { return is_integral(t) || t == DType::kBool; }

double round_to(double x, DType t) {
  switch (t) {
    case DType::kFloat32:
    case DType::kComplex64: return static_cast<double>(static_cast<float>(x));
    case DType::kFloat16: return static_cast<double>(static_cast<_Float16>(x));
    case DType::kBFloat16: {
      const float f = static_cast<float>(x);
      if (std::isnan(f)) return x;
      uint32_t bits = 0;
      std::memcpy(&bits, &f, 4);
      bits = (bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U;
      float g = 0;
      std::memcpy(&g, &bits, 4);
      return static_cast<double>(g);
    }
    default: return x;
  }
}

int64_t wrap_integer(int64_t x, DType t) {
  switch (t) {
    case DType::kBool: return x != 0 ? 1 : 0;
    case DType::kUInt8: return static_cast<uint8_t>(x);
    case DType::kInt8: return static_cast<int8_t>(x);
    case DType::kInt16: return static_cast<int16_t>(x);
    case DType::kUInt16: return static_cast<uint16_t>(x);
    case DType::kInt32: return static_cast<int32_t>(x);
    case DType::kUInt32: return static_cast<uint32_t>(x);
    default: return x;
  }
}

Val make_float(std::complex<double> c, DType t) {
  return {{round_to(c.real(), t), is_complex(t) ? round_to(c.imag(), t) : 0.0}, 0};
}

Val make(double x, DType t) {
  if (holds_integer(t)) return {{}, wrap_integer(static_cast<int64_t>(x), t)};
  return make_float(x, t);
}

Val convert(Val v, DType from, DType to) {
  if (holds_integer(from)) {
    if (holds_integer(to)) return {{}, wrap_integer(v.i, to)};
    return make_float(static_cast<double>(v.i), to);
  }
  if (to == DType::kBool) return {{}, v.c != std::complex<double>(0) ? 1 : 0};
  if (holds_integer(to)) return {{}, wrap_integer(static_cast<int64_t>(v.c.real()), to)};
  return make_float(v.c, to);
}

struct Data {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes;
  std::vector<Val> values;  // in logical order

  int64_t at(std::span<const int64_t> index) const {
    TATARA_CHECK(index.size() == sizes.size(), "index of rank ", index.size(), " into rank ", sizes.size());
    int64_t flat = 0;
    for (size_t d = 0; d < sizes.size(); ++d) {
      TATARA_CHECK(index[d] >= 0 && index[d] < sizes[d], "index ", index[d], " out of range in dimension ", d, " of size ",
                   sizes[d]);
      flat = flat * sizes[d] + index[d];
    }
    return flat;
  }
};

std::vector<int64_t> numbers(ExprContext& ctx, std::span<const Expr> list) {
  std::vector<int64_t> result;
  for (Expr e : list) {
    const Expr s = ctx.simplify(e);
    TATARA_CHECK(s.is_const(), "index ", s.str(), " is not constant here");
    result.push_back(s.const_value());
  }
  return result;
}

struct IndexError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class EagerLoops final : public LoopBuilder {
 public:
  EagerLoops(ExprContext& ctx, const std::vector<const Data*>& operands) : ctx_(ctx), operands_(operands) {}

  ExprContext& ctx() override { return ctx_; }
  DType dtype(ScalarId id) const override { return types_[static_cast<size_t>(id)]; }
  ScalarId constant(double value, DType t) override { return push(make(value, t), t); }
  ScalarId constant_int(int64_t value, DType t) override {
    return push(holds_integer(t) ? Val{{}, wrap_integer(value, t)} : make(static_cast<double>(value), t), t);
  }
  ScalarId constant_complex(double re, double im, DType t) override { return push(make_float({re, im}, t), t); }
  ScalarId index_value(Expr index, DType t) override { return constant_int(numbers(ctx_, std::span(&index, 1))[0], t); }
  ScalarId cast(ScalarId x, DType t) override { return dtype(x) == t ? x : push(convert(val(x), dtype(x), t), t); }
  Expr indirect(ScalarId value, Expr size, bool wrap, bool check) override {
    int64_t i = val(value).i;
    const int64_t n = numbers(ctx_, std::span(&size, 1))[0];
    if (wrap && i < 0) i += n;
    if (check && (i < 0 || i >= n)) throw IndexError("index out of range");
    return ctx_.constant(i);
  }
  ScalarId load(int operand, std::span<const Expr> indices) override {
    const Data& d = *operands_.at(static_cast<size_t>(operand));
    const DType t = compute_dtype(d.dtype);
    return push(d.values[static_cast<size_t>(d.at(numbers(ctx_, indices)))], t);
  }
  ScalarId load_masked(int operand, std::span<const Expr> indices, ScalarId mask, ScalarId other) override {
    return val(mask).i != 0 ? load(operand, indices) : other;
  }
  ScalarId apply(ScalarOp op, DType t, std::span<const ScalarId> operands) override;

  const Val& val(ScalarId id) const { return values_.at(static_cast<size_t>(id)); }
  Val as(ScalarId id, DType t) const { return convert(val(id), dtype(id), t); }
  ScalarId push(Val v, DType t) {
    values_.push_back(v);
    types_.push_back(t);
    return static_cast<ScalarId>(values_.size()) - 1;
  }

 private:
  ExprContext& ctx_;
  const std::vector<const Data*>& operands_;
  std::vector<Val> values_;
  std::vector<DType> types_;
};

double unary(ScalarOp op, double x) {
  switch (op) {
    case ScalarOp::kFloor: return std::floor(x);
    case ScalarOp::kCeil: return std::ceil(x);
    case ScalarOp::kTrunc: return std::trunc(x);
    case ScalarOp::kRound: return std::nearbyint(x);
    case ScalarOp::kSqrt: return std::sqrt(x);
    case ScalarOp::kRsqrt: return 1 / std::sqrt(x);
    case ScalarOp::kReciprocal: return 1 / x;
    case ScalarOp::kExp:
    case ScalarOp::kExpTerm: return std::exp(x);
    case ScalarOp::kExp2: return std::exp2(x);
    case ScalarOp::kExpm1: return std::expm1(x);
    case ScalarOp::kLog: return std::log(x);
    case ScalarOp::kLog2: return std::log2(x);
    case ScalarOp::kLog10: return std::log10(x);
    case ScalarOp::kLog1p: return std::log1p(x);
    case ScalarOp::kSin: return std::sin(x);
    case ScalarOp::kCos: return std::cos(x);
    case ScalarOp::kTan: return std::tan(x);
    case ScalarOp::kTanh: return std::tanh(x);
    case ScalarOp::kErf: return std::erf(x);
    case ScalarOp::kErfc: return std::erfc(x);
    case ScalarOp::kAsin: return std::asin(x);
    case ScalarOp::kAcos: return std::acos(x);
    case ScalarOp::kAtan: return std::atan(x);
    case ScalarOp::kSinh: return std::sinh(x);
    case ScalarOp::kCosh: return std::cosh(x);
    case ScalarOp::kAsinh: return std::asinh(x);
    case ScalarOp::kAcosh: return std::acosh(x);
    case ScalarOp::kAtanh: return std::atanh(x);
    case ScalarOp::kLgamma: return std::lgamma(x);
    case ScalarOp::kSigmoid: return 1 / (1 + std::exp(-x));
    default: throw Unsupported(str_cat("reference: unary ", static_cast<int>(op)));
  }
}

ScalarId EagerLoops::apply(ScalarOp op, DType t, std::span<const ScalarId> o) {
  const auto real = [&](size_t i) { return val(o[i]).c.real(); };
  const DType in = dtype(o[0]);
  const bool ints = holds_integer(in);
  const auto flag = [&](bool b) { return push({{}, b ? 1 : 0}, DType::kBool); };
  const auto order = [&](auto less) { return flag(ints ? less(val(o[0]).i, val(o[1]).i) : less(real(0), real(1))); };
  switch (op) {
    case ScalarOp::kSelect:
      TATARA_CHECK(dtype(o[0]) == DType::kBool && dtype(o[1]) == dtype(o[2]), "select: bad operand types");
      return push(val(o[0]).i != 0 ? val(o[1]) : val(o[2]), t);
    case ScalarOp::kEq: return flag(ints ? val(o[0]).i == val(o[1]).i : val(o[0]).c == val(o[1]).c);
    case ScalarOp::kNe: return flag(ints ? val(o[0]).i != val(o[1]).i : val(o[0]).c != val(o[1]).c);
    case ScalarOp::kLt: return order([](auto a, auto b) { return a < b; });
    case ScalarOp::kLe: return order([](auto a, auto b) { return a <= b; });
    case ScalarOp::kGt: return order([](auto a, auto b) { return a > b; });
    case ScalarOp::kGe: return order([](auto a, auto b) { return a >= b; });
    case ScalarOp::kIsNan: return flag(!ints && (std::isnan(real(0)) || std::isnan(val(o[0]).c.imag())));
    case ScalarOp::kIsInf: return flag(!ints && (std::isinf(real(0)) || std::isinf(val(o[0]).c.imag())));
    case ScalarOp::kSignbit: return flag(ints ? val(o[0]).i < 0 : std::signbit(real(0)));
    case ScalarOp::kCast: return push(as(o[0], t), t);
    case ScalarOp::kAbs:
      if (is_complex(in)) return push(make(std::abs(val(o[0]).c), t), t);
      break;
    case ScalarOp::kReal: return push(make(real(0), t), t);
    case ScalarOp::kImag: return push(make(val(o[0]).c.imag(), t), t);
    case ScalarOp::kConj: return push(make_float(std::conj(val(o[0]).c), t), t);
    case ScalarOp::kComplex: return push(make_float({real(0), real(1)}, t), t);
    case ScalarOp::kAngle: return push(make(std::arg(val(o[0]).c), t), t);
    default: break;
  }
  for (ScalarId id : o) TATARA_CHECK(dtype(id) == t, "operands of another type than the result's");
  if (ints) {
    const int64_t a = val(o[0]).i;
    const int64_t b = o.size() > 1 ? val(o[1]).i : 0;
    int64_t r = 0;
    switch (op) {
      case ScalarOp::kAdd: r = a + b; break;
      case ScalarOp::kSub: r = a - b; break;
      case ScalarOp::kMul: r = a * b; break;
      case ScalarOp::kNeg: r = -a; break;
      case ScalarOp::kAbs: r = a < 0 ? -a : a; break;
      case ScalarOp::kMin: r = std::min(a, b); break;
      case ScalarOp::kMax: r = std::max(a, b); break;
      case ScalarOp::kAnd: r = a & b; break;
      case ScalarOp::kOr: r = a | b; break;
      case ScalarOp::kXor: r = a ^ b; break;
      case ScalarOp::kNot: r = t == DType::kBool ? !a : ~a; break;
      case ScalarOp::kFloorDiv: r = b == 0 ? 0 : a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0); break;
      case ScalarOp::kTruncDiv: r = b == 0 ? 0 : a / b; break;
      case ScalarOp::kMod: r = b == 0 ? 0 : ((a % b) + b) % b; break;
      case ScalarOp::kFmod: r = b == 0 ? 0 : a % b; break;
      default: throw Unsupported(str_cat("reference: integer operator ", static_cast<int>(op)));
    }
    return push({{}, wrap_integer(r, t)}, t);
  }
  const std::complex<double> a = val(o[0]).c;
  const std::complex<double> b = o.size() > 1 ? val(o[1]).c : 0;
  const auto nan_or = [&](double r) { return std::isnan(a.real()) || std::isnan(b.real()) ? NAN : r; };
  switch (op) {
    case ScalarOp::kAdd: return push(make_float(a + b, t), t);
    case ScalarOp::kSub: return push(make_float(a - b, t), t);
    case ScalarOp::kMul: return push(is_complex(t) ? make_float(a * b, t) : make(a.real() * b.real(), t), t);
    case ScalarOp::kDiv: return push(is_complex(t) ? make_float(a / b, t) : make(a.real() / b.real(), t), t);
    case ScalarOp::kNeg: return push(make_float(-a, t), t);
    case ScalarOp::kAbs: return push(make(std::abs(a.real()), t), t);
    case ScalarOp::kMin: return push(make(nan_or(std::min(a.real(), b.real())), t), t);
    case ScalarOp::kMax: return push(make(nan_or(std::max(a.real(), b.real())), t), t);
    case ScalarOp::kFloorDiv: return push(make(std::floor(a.real() / b.real()), t), t);
    case ScalarOp::kTruncDiv: return push(make(std::trunc(a.real() / b.real()), t), t);
    case ScalarOp::kFmin: return push(make(std::fmin(a.real(), b.real()), t), t);
    case ScalarOp::kFmax: return push(make(std::fmax(a.real(), b.real()), t), t);
    case ScalarOp::kFmod: return push(make(std::fmod(a.real(), b.real()), t), t);
    case ScalarOp::kMod: {
      const double rest = std::fmod(a.real(), b.real());
      return push(make(rest != 0 && (rest < 0) != (b.real() < 0) ? rest + b.real() : rest, t), t);
    }
    case ScalarOp::kPow: return push(is_complex(t) ? make_float(std::pow(a, b), t) : make(std::pow(a.real(), b.real()), t), t);
    case ScalarOp::kFma: return push(make(std::fma(a.real(), b.real(), real(2)), t), t);
    case ScalarOp::kAtan2: return push(make(std::atan2(a.real(), b.real()), t), t);
    case ScalarOp::kCopysign: return push(make(std::copysign(a.real(), b.real()), t), t);
    case ScalarOp::kHypot: return push(make(std::hypot(a.real(), b.real()), t), t);
    case ScalarOp::kExp:
      if (is_complex(t)) return push(make_float(std::exp(a), t), t);
      break;
    case ScalarOp::kLog:
      if (is_complex(t)) return push(make_float(std::log(a), t), t);
      break;
    case ScalarOp::kSqrt:
      if (is_complex(t)) return push(make_float(std::sqrt(a), t), t);
      break;
    default: break;
  }
  return push(make(unary(op, a.real()), t), t);
}

template <typename Fn>
void for_each_index(std::span<const int64_t> sizes, Fn&& fn) {
  int64_t count = 1;
  for (int64_t n : sizes) count *= n;
  std::vector<int64_t> index(sizes.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    fn(std::span<const int64_t>(index));
    for (size_t d = sizes.size(); d-- > 0;) {
      if (++index[d] < sizes[d]) break;
      index[d] = 0;
    }
  }
}

class EagerLowering final : public LowerContext {
 public:
  EagerLowering(const Graph& graph, const Node& node, std::vector<const Data*> operands, std::vector<Data>& results)
      : graph_(graph), node_(node), operands_(std::move(operands)), results_(results) {
    for_each_operand(node, [&](ValueId id) { types_.push_back(&graph.type(id)); });
  }
  const Graph& graph() const override { return graph_; }
  const Node& node() const override { return node_; }
  const TensorType& operand(int i) const override { return *types_.at(static_cast<size_t>(i)); }
  int num_operands() const override { return static_cast<int>(types_.size()); }
  const TensorType& result(int i) const override { return graph_.type(node_.outputs.at(static_cast<size_t>(i))); }

  void pointwise(int output, ElementFn fn) override {
    Data& out = results_.at(static_cast<size_t>(output));
    for_each_index(out.sizes, [&](std::span<const int64_t> index) {
      EagerLoops b(ctx(), operands_);
      out.values.push_back(b.as(fn(b, exprs(index)), out.dtype));
    });
  }
  void view(std::function<std::vector<Expr>(std::span<const Expr>)> map) override {
    Data& out = results_.at(0);
    for_each_index(out.sizes, [&](std::span<const int64_t> index) {
      const Data& in = *operands_.at(0);
      out.values.push_back(in.values[static_cast<size_t>(in.at(numbers(ctx(), map(exprs(index)))))]);
    });
  }
  void reduction(ReductionDef def) override { fold(def, false, false); }
  void scan(ReductionDef def, bool reverse) override { fold(def, true, reverse); }
  void product(ProductKind) override { throw InternalError("a product that passes for GPUs make"); }
  void attention_scores() override { product(ProductKind::kWhole); }
  void attention() override { product(ProductKind::kWhole); }
  void weighed_product() override { product(ProductKind::kWhole); }
  void sort(SortDef) override { throw Unsupported("sorting, in the reference"); }
  void scatter(ScatterDef def) override {
    Data& out = results_.at(0);
    out.values = operands_.at(static_cast<size_t>(def.base_operand))->values;
    for_each_index(numbers(ctx(), def.domain), [&](std::span<const int64_t> index) {
      EagerLoops b(ctx(), operands_);
      const auto iter = exprs(index);
      Val& slot = out.values[static_cast<size_t>(out.at(numbers(ctx(), def.destination(b, iter))))];
      const Val v = b.as(def.value(b, iter), out.dtype);
      const ScalarId operands[] = {b.push(slot, out.dtype), b.push(v, out.dtype)};
      switch (def.mode) {
        case loops::StoreMode::kSet: slot = v; break;
        case loops::StoreMode::kAdd: slot = b.val(b.apply(out.dtype == DType::kBool ? ScalarOp::kOr : ScalarOp::kAdd, out.dtype, operands)); break;
        case loops::StoreMode::kMul: slot = b.val(b.apply(ScalarOp::kMul, out.dtype, operands)); break;
        case loops::StoreMode::kMin: slot = b.val(b.apply(ScalarOp::kMin, out.dtype, operands)); break;
        case loops::StoreMode::kMax: slot = b.val(b.apply(ScalarOp::kMax, out.dtype, operands)); break;
      }
    });
  }

 private:
  std::vector<Expr> exprs(std::span<const int64_t> index) const {
    std::vector<Expr> result;
    for (int64_t i : index) result.push_back(ctx().constant(i));
    return result;
  }

  std::vector<Val> merge(const ReductionDef& def, const std::vector<Val>& x, const std::vector<Val>& y) {
    EagerLoops b(ctx(), operands_);
    const auto ids = [&](const std::vector<Val>& v) {
      std::vector<ScalarId> list;
      for (size_t i = 0; i < v.size(); ++i) list.push_back(b.push(v[i], def.dtypes[i]));
      return list;
    };
    const auto a = ids(x);
    const auto c = ids(y);
    std::vector<ScalarId> merged;
    if (def.combine[0] == loops::Combine::kCustom) {
      merged = def.merge(b, a, c);
    } else {
      for (size_t i = 0; i < a.size(); ++i) {
        const ScalarId operands[] = {a[i], c[i]};
        merged.push_back(b.apply(operator_of(def.combine[i]), def.dtypes[i], operands));
      }
    }
    std::vector<Val> result;
    for (size_t i = 0; i < merged.size(); ++i) {
      TATARA_CHECK(b.dtype(merged[i]) == def.dtypes[i], "merge gives another type");
      result.push_back(b.val(merged[i]));
    }
    return result;
  }

  static ScalarOp operator_of(loops::Combine combine) {
    switch (combine) {
      case loops::Combine::kAdd: return ScalarOp::kAdd;
      case loops::Combine::kMul: return ScalarOp::kMul;
      case loops::Combine::kMin: return ScalarOp::kMin;
      case loops::Combine::kMax: return ScalarOp::kMax;
      case loops::Combine::kAnd: return ScalarOp::kAnd;
      case loops::Combine::kOr: return ScalarOp::kOr;
      case loops::Combine::kXor: return ScalarOp::kXor;
      case loops::Combine::kNone:
      case loops::Combine::kCustom: break;
    }
    throw InternalError("bad combine");
  }

  std::vector<Val> values_of(EagerLoops& b, const std::vector<ScalarId>& ids, const std::vector<DType>& dtypes) {
    std::vector<Val> result;
    for (size_t i = 0; i < ids.size(); ++i) {
      TATARA_CHECK(b.dtype(ids[i]) == dtypes.at(i), "accumulator of another type");
      result.push_back(b.val(ids[i]));
    }
    return result;
  }

  void fold(const ReductionDef& def, bool scan, bool reverse) {
    const std::vector<int64_t> in_sizes = numbers(ctx(), operand(0).sizes);
    std::vector<int64_t> outer = in_sizes;
    std::vector<int64_t> inner(in_sizes.size(), 1);
    for (int64_t d : def.dims) {
      inner[static_cast<size_t>(d)] = in_sizes[static_cast<size_t>(d)];
      outer[static_cast<size_t>(d)] = 1;
    }
    if (scan) {
      for (Data& out : results_) {
        int64_t n = 1;
        for (int64_t s : out.sizes) n *= s;
        out.values.resize(static_cast<size_t>(n));
      }
    }
    const auto store = [&](std::span<const int64_t> at, const std::vector<Val>& acc) {
      EagerLoops b(ctx(), operands_);
      std::vector<ScalarId> ids;
      for (size_t i = 0; i < acc.size(); ++i) ids.push_back(b.push(acc[i], def.dtypes[i]));
      if (def.finish) ids = def.finish(b, ids, exprs(at));
      TATARA_CHECK(ids.size() >= results_.size(), "too few results");
      for (size_t i = 0; i < results_.size(); ++i) {
        const Val v = b.as(ids[i], results_[i].dtype);
        if (scan) {
          results_[i].values[static_cast<size_t>(results_[i].at(at))] = v;
        } else {
          results_[i].values.push_back(v);
        }
      }
    };
    for_each_index(outer, [&](std::span<const int64_t> base) {
      EagerLoops start(ctx(), operands_);
      std::vector<Val> acc = values_of(start, def.init(start), def.dtypes);
      std::vector<Val> other = acc;  // a second partial result: merging must be associative
      int64_t step = 0;
      std::vector<std::vector<int64_t>> order;
      for_each_index(inner, [&](std::span<const int64_t> offset) {
        std::vector<int64_t> at(base.begin(), base.end());
        for (size_t d = 0; d < at.size(); ++d) at[d] += offset[d];
        order.push_back(at);
      });
      if (reverse) std::reverse(order.begin(), order.end());
      for (const auto& at : order) {
        EagerLoops b(ctx(), operands_);
        const auto element = values_of(b, def.element(b, exprs(at)), def.dtypes);
        if (scan) {
          acc = merge(def, acc, element);
          store(at, acc);
        } else if (step++ < static_cast<int64_t>(order.size()) / 2) {
          acc = merge(def, acc, element);
        } else {
          other = merge(def, other, element);
        }
      }
      if (!scan) store(base, merge(def, acc, other));
    });
  }

  const Graph& graph_;
  const Node& node_;
  std::vector<const Data*> operands_;
  std::vector<const TensorType*> types_;
  std::vector<Data>& results_;
};

class Evaluator {
 public:
  explicit Evaluator(Graph& graph) : graph_(graph) {}
  std::map<ValueId, Data> data;

  const Data& eval(ValueId id) {
    const auto found = data.find(id);
    if (found != data.end()) return found->second;
    const Node node = *graph_.producer(id);  // a copy: the graph grows
    if (node.op->decompose) {
      GraphBuilder b(graph_);
      const std::vector<ValueId> parts = node.op->decompose(b, node.args);
      if (!parts.empty()) {
        TATARA_CHECK(parts.size() == node.outputs.size(), node.op->name, ": decomposition has ", parts.size(),
                     " results, types say ", node.outputs.size());
        for (size_t i = 0; i < parts.size(); ++i) {
          const Data d = eval(parts[i]);
          check(node.op->name, graph_.type(node.outputs[i]), d);
          data[node.outputs[i]] = d;
        }
        return data.at(id);
      }
    }
    std::vector<const Data*> operands;
    for_each_operand(node, [&](ValueId v) {
      eval(v);
      operands.push_back(nullptr);
    });
    size_t n = 0;
    for_each_operand(node, [&](ValueId v) { operands[n++] = &data.at(v); });
    std::vector<Data> results;
    for (ValueId v : node.outputs) {
      const TensorType& type = graph_.type(v);
      results.push_back({type.dtype, numbers(graph_.ctx(), type.sizes), {}});
    }
    if (node.op->lower) {
      EagerLowering lowering(graph_, node, operands, results);
      node.op->lower(lowering);
    } else {
      product(node, operands, results);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      int64_t count = 1;
      for (int64_t s : results[i].sizes) count *= s;
      TATARA_CHECK(static_cast<int64_t>(results[i].values.size()) == count, node.op->name, ": result ", i, " is not filled");
      data[node.outputs[i]] = std::move(results[i]);
    }
    return data.at(id);
  }

 private:
  void check(const std::string& name, const TensorType& type, const Data& d) {
    TATARA_CHECK(type.dtype == d.dtype, name, ": decomposition gives ", dtype_name(d.dtype), ", types say ",
                 dtype_name(type.dtype));
    TATARA_CHECK(numbers(graph_.ctx(), type.sizes) == d.sizes, name, ": decomposition gives other sizes");
  }

  /// mm, bmm, mv, dot by their definition; the rest of the host's operators are not evaluated here.
  void product(const Node& node, const std::vector<const Data*>& in, std::vector<Data>& out) {
    const std::string& name = node.op->name;
    if (name != "mm" && name != "bmm" && name != "mv" && name != "dot") throw Unsupported("host operator " + name);
    const Data& a = *in[0];
    const Data& b = *in[1];
    const int64_t batch = name == "bmm" ? a.sizes[0] : 1;
    const int64_t k = a.sizes.back();
    const int64_t rows = name == "dot" ? 1 : a.sizes[a.sizes.size() - 2];
    const int64_t columns = name == "mm" || name == "bmm" ? b.sizes.back() : 1;
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          std::complex<double> sum = 0;
          int64_t whole = 0;
          for (int64_t x = 0; x < k; ++x) {
            const Val& u = a.values[static_cast<size_t>((n * rows + i) * k + x)];
            const Val& v = b.values[static_cast<size_t>((n * k + x) * columns + j)];
            sum += u.c * v.c;
            whole += u.i * v.i;
          }
          out[0].values.push_back(holds_integer(a.dtype) ? Val{{}, wrap_integer(whole, a.dtype)} : make_float(sum, a.dtype));
        }
      }
    }
  }

  Graph& graph_;
};

std::vector<int64_t> int_list(const std::string& text) {
  std::vector<int64_t> result;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    if (!part.empty()) result.push_back(std::stoll(part));
  }
  return result;
}

template <typename T>
T read_as(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

Val read_element(const char* p, DType t) {
  switch (t) {
    case DType::kBool:
    case DType::kUInt8: return {{}, read_as<uint8_t>(p)};
    case DType::kInt8: return {{}, read_as<int8_t>(p)};
    case DType::kInt16: return {{}, read_as<int16_t>(p)};
    case DType::kInt32: return {{}, read_as<int32_t>(p)};
    case DType::kInt64: return {{}, read_as<int64_t>(p)};
    case DType::kFloat16: return {static_cast<double>(read_as<_Float16>(p)), 0};
    case DType::kBFloat16: {
      const uint32_t bits = static_cast<uint32_t>(read_as<uint16_t>(p)) << 16;
      return {static_cast<double>(read_as<float>(reinterpret_cast<const char*>(&bits))), 0};
    }
    case DType::kFloat32: return {static_cast<double>(read_as<float>(p)), 0};
    case DType::kFloat64: return {read_as<double>(p), 0};
    case DType::kComplex64: return {{static_cast<double>(read_as<float>(p)), static_cast<double>(read_as<float>(p + 4))}, 0};
    case DType::kComplex128: return {{read_as<double>(p), read_as<double>(p + 8)}, 0};
    default: throw Unsupported("reference: dtype of an input");
  }
}

Arg read_arg(ExprContext& ctx, const std::string& kind, const std::string& text, const std::vector<ValueId>& inputs) {
  if (kind == "n") return NoneArg{};
  if (kind == "t") return TensorArg{inputs.at(std::stoul(text))};
  if (kind == "i") return Scalar(static_cast<int64_t>(std::stoll(text)));
  if (kind == "f") return Scalar(std::stod(text));
  if (kind == "b") return Scalar(text == "1");
  if (kind == "s") return text;
  if (kind == "d") return parse_dtype(text).value();
  if (kind == "l") {
    SymInts list;
    for (int64_t v : int_list(text)) list.values.push_back(ctx.constant(v));
    return list;
  }
  if (kind == "F") {
    std::vector<double> list;
    std::istringstream in(text);
    for (std::string part; std::getline(in, part, ',');) list.push_back(std::stod(part));
    return list;
  }
  if (kind == "T") {
    TensorList list;
    for (int64_t v : int_list(text)) list.values.push_back(v < 0 ? kNoValue : inputs.at(static_cast<size_t>(v)));
    return list;
  }
  throw InternalError("argument kind " + kind);
}

/// Request: lines "in DTYPE SIZES STRIDES ADDRESS", "op NAME", "arg KIND TEXT", "meta" (types only).
std::string run(const std::string& request) {
  auto ctx = std::make_shared<ExprContext>();
  Graph graph(ctx);
  Evaluator evaluator(graph);
  std::vector<ValueId> inputs;
  std::string name;
  std::vector<Arg> args;
  bool types_only = false;
  std::istringstream in(request);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "in") {
      std::string dtype;
      std::string sizes;
      std::string strides;
      uint64_t address = 0;
      words >> dtype >> sizes >> strides >> address;
      TensorType type;
      type.dtype = parse_dtype(dtype).value();
      Data d{type.dtype, int_list(sizes.substr(1)), {}};
      const auto steps = int_list(strides.substr(1));
      for (int64_t s : d.sizes) type.sizes.push_back(ctx->constant(s));
      for (int64_t s : steps) type.strides.push_back(ctx->constant(s));
      const char* base = reinterpret_cast<const char*>(address);
      for_each_index(d.sizes, [&](std::span<const int64_t> index) {
        int64_t offset = 0;
        for (size_t i = 0; i < index.size(); ++i) offset += index[i] * steps[i];
        d.values.push_back(read_element(base + offset * dtype_size(type.dtype), type.dtype));
      });
      inputs.push_back(graph.add_input(type));
      evaluator.data[inputs.back()] = std::move(d);
    } else if (word == "op") {
      words >> name;
    } else if (word == "meta") {
      types_only = true;
    } else if (word == "arg") {
      std::string kind;
      std::string text;
      words >> kind >> text;
      args.push_back(read_arg(*ctx, kind, text, inputs));
    }
  }
  GraphBuilder builder(graph);
  const std::vector<ValueId> outputs = builder.op_multi(name, args);
  std::ostringstream out;
  out.precision(17);
  out << "ok\n";
  for (ValueId id : outputs) {
    const TensorType type = graph.type(id);
    out << dtype_name(type.dtype) << " |";
    for (int64_t s : numbers(*ctx, type.sizes)) out << ' ' << s;
    out << " |";
    for (int64_t s : numbers(*ctx, type.strides)) out << ' ' << s;
    out << " |";
    if (!types_only) {
      const Data& d = evaluator.eval(id);
      for (const Val& v : d.values) {
        out << ' ';
        if (holds_integer(d.dtype)) {
          out << v.i;
        } else if (is_complex(d.dtype)) {
          out << v.c.real() << ',' << v.c.imag();
        } else {
          out << v.c.real();
        }
      }
    }
    out << '\n';
  }
  return out.str();
}

}  // namespace
}  // namespace tatara

/// The answer, or "error KIND message". Valid until the next call.
extern "C" __attribute__((visibility("default"))) const char* tatara_reference_run(const char* request) {
  static std::string answer;
  try {
    answer = tatara::run(request);
  } catch (const tatara::Error& error) {
    answer = "error " + std::string(error.kind()) + " " + error.message();
  } catch (const std::exception& error) {
    answer = std::string("error other ") + error.what();
  }
  return answer.c_str();
}

/// Every operator: "name\tschema\tPython names\thas definition" a line.
extern "C" __attribute__((visibility("default"))) const char* tatara_reference_ops() {
  static std::string answer;
  answer.clear();
  for (const tatara::OpDef* op : tatara::OpRegistry::global().all()) {
    const bool defined = op->lower || op->decompose || op->choose;
    answer += op->name + "\t" + op->schema_text + "\t" + op->names + "\t" + (defined ? "1" : "0") + "\n";
  }
  return answer.c_str();
}
