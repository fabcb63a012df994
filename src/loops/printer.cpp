#include <array>
#include <charconv>
#include <string>

#include "loops/kernel.h"
#include "support/error.h"

namespace tatara::loops {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(ScalarOp::kPhilox) + 1> kNames = {"const",
                                                                                             "index",
                                                                                             "add",
                                                                                             "sub",
                                                                                             "mul",
                                                                                             "div",
                                                                                             "floordiv",
                                                                                             "truncdiv",
                                                                                             "mod",
                                                                                             "fmod",
                                                                                             "neg",
                                                                                             "abs",
                                                                                             "min",
                                                                                             "max",
                                                                                             "fmin",
                                                                                             "fmax",
                                                                                             "fma",
                                                                                             "and",
                                                                                             "or",
                                                                                             "xor",
                                                                                             "not",
                                                                                             "shl",
                                                                                             "shr",
                                                                                             "eq",
                                                                                             "ne",
                                                                                             "lt",
                                                                                             "le",
                                                                                             "gt",
                                                                                             "ge",
                                                                                             "select",
                                                                                             "isnan",
                                                                                             "isinf",
                                                                                             "signbit",
                                                                                             "cast",
                                                                                             "bitcast",
                                                                                             "floor",
                                                                                             "ceil",
                                                                                             "trunc",
                                                                                             "round",
                                                                                             "sqrt",
                                                                                             "rsqrt",
                                                                                             "reciprocal",
                                                                                             "exp",
                                                                                             "exp_term",
                                                                                             "exp2",
                                                                                             "expm1",
                                                                                             "log",
                                                                                             "log2",
                                                                                             "log10",
                                                                                             "log1p",
                                                                                             "sin",
                                                                                             "cos",
                                                                                             "tan",
                                                                                             "asin",
                                                                                             "acos",
                                                                                             "atan",
                                                                                             "atan2",
                                                                                             "sinh",
                                                                                             "cosh",
                                                                                             "tanh",
                                                                                             "asinh",
                                                                                             "acosh",
                                                                                             "atanh",
                                                                                             "erf",
                                                                                             "erfc",
                                                                                             "erfinv",
                                                                                             "lgamma",
                                                                                             "digamma",
                                                                                             "pow",
                                                                                             "hypot",
                                                                                             "copysign",
                                                                                             "nextafter",
                                                                                             "ldexp",
                                                                                             "frexp_mantissa",
                                                                                             "frexp_exponent",
                                                                                             "sigmoid",
                                                                                             "i0",
                                                                                             "i0e",
                                                                                             "i1",
                                                                                             "i1e",
                                                                                             "ndtri",
                                                                                             "log_ndtr",
                                                                                             "complex",
                                                                                             "real",
                                                                                             "imag",
                                                                                             "conj",
                                                                                             "angle",
                                                                                             "philox"};

std::string number(double value) {
  if (value != value) return "nan";
  if (value == __builtin_inf()) return "inf";
  if (value == -__builtin_inf()) return "-inf";
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return {buffer.data(), end};
}

std::string_view combine_name(Combine combine) {
  switch (combine) {
    case Combine::kNone: return "none";
    case Combine::kAdd: return "add";
    case Combine::kMul: return "mul";
    case Combine::kMin: return "min";
    case Combine::kMax: return "max";
    case Combine::kAnd: return "and";
    case Combine::kOr: return "or";
    case Combine::kXor: return "xor";
    case Combine::kCustom: return "custom";
  }
  return "none";
}

std::string_view kind_name(LoopKind kind) {
  switch (kind) {
    case LoopKind::kSerial: return "for";
    case LoopKind::kParallel: return "parallel";
    case LoopKind::kVector: return "vector";
    case LoopKind::kUnroll: return "unroll";
  }
  return "for";
}

std::string_view mode_name(StoreMode mode) {
  switch (mode) {
    case StoreMode::kSet: return "";
    case StoreMode::kAdd: return ".add";
    case StoreMode::kMul: return ".mul";
    case StoreMode::kMin: return ".min";
    case StoreMode::kMax: return ".max";
  }
  return "";
}

class Printer {
 public:
  explicit Printer(const Kernel& kernel) : kernel_(kernel) {}

  std::string run() {
    static constexpr std::array<std::string_view, 5> kKinds = {"in", "out", "inout", "scratch", "value"};
    out_ = "kernel " + kernel_.name + "(";
    for (size_t i = 0; i < kernel_.buffers.size(); ++i) {
      const BufferArg& arg = kernel_.buffers[i];
      if (i > 0) out_ += ", ";
      out_ += std::string(kKinds[static_cast<size_t>(arg.kind)]) + " b" + std::to_string(i) + ": " +
              std::string(dtype_name(arg.dtype)) + "[" + arg.numel.str() + "]";
    }
    for (const Expr size : kernel_.sizes) {
      out_ += ", size " + size.str();
      // A number of the program: code for sizes divides without a sign.
      if (kernel_.ctx->range(size).lo < 0) out_ += " signed";
    }
    for (size_t i = 0; i < kernel_.scalar_args.size(); ++i) {
      out_ += ", scalar " + value(kernel_.scalar_arg_ids[i]) + ": " + std::string(dtype_name(kernel_.scalar_args[i]));
    }
    if (kernel_.gpu.threads > 0) {
      out_ += str_cat(", gpu threads ", kernel_.gpu.threads, " row ", kernel_.gpu.row, " lanes ", kernel_.gpu.lanes);
      if (kernel_.gpu.passes > 1) out_ += str_cat(" passes ", kernel_.gpu.passes);
      if (kernel_.gpu.column > 1) out_ += str_cat(" column ", kernel_.gpu.column);
      if (kernel_.gpu.tiles) out_ += " tiles";
      if (kernel_.gpu.items > 0) out_ += str_cat(" items ", kernel_.gpu.items);
      if (kernel_.gpu.shared > 0) out_ += str_cat(" shared ", kernel_.gpu.shared, " resident ", kernel_.gpu.resident);
    }
    out_ += ") {\n";
    block(kernel_.body, 1);
    return out_ + "}\n";
  }

 private:
  static std::string value(ScalarId id) { return id == kNoScalar ? "none" : "%" + std::to_string(id); }
  std::string typed(ScalarId id) const {
    return value(id) + ": " + std::string(dtype_name(kernel_.scalar_types[static_cast<size_t>(id)]));
  }
  void indent(int depth) { out_.append(static_cast<size_t>(depth) * 2, ' '); }

  void scalar(const Let& let) {
    const Scalar& s = let.scalar;
    out_ += typed(let.dst) + " = " + std::string(scalar_op_name(s.op)) + "(";
    if (s.op == ScalarOp::kConst) {
      if (is_complex(s.dtype)) {
        out_ += number(s.const_re) + ", " + number(s.const_im);
      } else {
        out_ += is_floating(s.dtype) ? number(s.const_re) : std::to_string(s.const_int);
      }
    } else if (s.op == ScalarOp::kIndex) {
      out_ += s.index.str();
    }
    for (size_t i = 0; i < s.operands.size(); ++i) out_ += (i > 0 ? ", " : "") + value(s.operands[i]);
    if (s.op == ScalarOp::kPhilox) out_ += ", lane=" + std::to_string(s.lane);
    out_ += ")";
  }

  void statement(const Let& let, int) { scalar(let); }
  void statement(const Load& load, int) {
    out_ += typed(load.dst) + " = load b" + std::to_string(load.buffer) + "[" + load.index.str() + "]";
    if (load.mask != kNoScalar) out_ += " if " + value(load.mask) + " else " + value(load.other);
  }
  void statement(const Store& store, int) {
    out_ += "store" + std::string(mode_name(store.mode)) + (store.atomic ? ".atomic" : "") + " b" +
            std::to_string(store.buffer) + "[" + store.index.str() + "] = " + value(store.value);
    if (store.mask != kNoScalar) out_ += " if " + value(store.mask);
  }
  void statement(const IndexValue& index, int) {
    out_ += "index " + index.symbol.str() + " = " + value(index.value) + " in " + index.size.str();
    if (index.wrap) out_ += " wrap";
    if (index.check) out_ += " check";
    if (index.mask != kNoScalar) out_ += " if " + value(index.mask);
  }
  void statement(const Transpose& tile, int) {
    out_ += "transpose b" + std::to_string(tile.to) + "[" + tile.to_index.str() + "] stride " + tile.to_stride.str() +
            " = b" + std::to_string(tile.from) + "[" + tile.from_index.str() + "] stride " + tile.from_stride.str() +
            " rows " + tile.rows.str() + " columns " + tile.columns.str();
  }
  void statement(const Sort& sort, int) {
    const auto row = [&](const Sort::Row& r) {
      if (r.buffer < 0) return std::string("none");
      return "b" + std::to_string(r.buffer) + "[" + r.index.str() + "] stride " + r.stride.str();
    };
    out_ += "sort values " + row(sort.values) + " places " + row(sort.places) + " = " + row(sort.from) + " extent " +
            std::to_string(sort.extent) + " count " + std::to_string(sort.count) +
            (sort.descending ? " descending" : " ascending");
  }
  void statement(const Product& product, int depth) {
    const auto side = [&](const Product::Side& s) {
      out_ += str_cat(" tile ", s.extent, " from ", s.first.str());
      if (s.matrices) {
        const Product::Matrices& m = *s.matrices;
        out_ += str_cat(" matrix [", m.number.str(), "] of b", s.parts.at(0), " sizes ", m.batches, " ", m.rows, " ",
                        m.inner, " strides ", m.batch_stride, " ", m.row_stride, " ", m.inner_stride, " offset ",
                        m.offset, m.interleaved ? " interleaved" : "", m.bytes == 1 ? " bytes" : "");
        return;
      }
      out_ += str_cat(" at [", s.index.str(), "] of");
      for (const int buffer : s.parts) out_ += str_cat(" b", buffer);
    };
    out_ += str_cat("product ", typed(product.value), " blocks ", product.blocks.str(), " left");
    side(product.left);
    out_ += " right";
    side(product.right);
    if (product.span) out_ += str_cat(" span ", product.span->first.str(), " to ", product.span->end.str());
    if (product.by_blocks) out_ += " by blocks";
    if (product.scales) {
      const Product::Scales& s = *product.scales;
      out_ += str_cat(" scales b", s.left, "[", s.left_index.str(), "] strides ", s.left_row, " ", s.left_block, " b",
                      s.right, "[", s.right_index.str(), "] stride ", s.right_block);
    }
    out_ += str_cat(" row ", product.row.str(), " in ", product.rows.str(), " {\n");
    indent(depth + 1);
    statement(*product.each, depth + 1);
    out_ += "\n";
    indent(depth);
    out_ += "}";
  }
  void statement(const Attention& a, int depth) {
    const auto side = [&](std::string_view what, const Attention::Side& s) {
      out_ += str_cat(what, "b", s.buffer, " sizes ", s.batches[0], " ", s.batches[1], " ", s.rows, " ", s.width,
                      " strides ", s.batch_strides[0], " ", s.batch_strides[1], " ", s.row_stride, " offset ", s.offset,
                      " at [", s.number[0].str(), "] [", s.number[1].str(), "]");
    };
    const char* const form = a.is_sum() ? "sum" : a.form == Attention::Form::kSoftmax ? "softmax" : "softmax_or_zero";
    out_ += str_cat("attention rows ", a.extent, " from ", a.first.str(), " keys ", a.block, " ", form);
    for (const Attention::Score& score : a.scores) {
      out_ += " product " + typed(score.product);
      side(" of ", score.queries);
      side(" and ", score.keys);
    }
    for (const Attention::Sum& sum : a.sums) {
      out_ += " result " + typed(sum.result);
      side(" of ", sum.values);
    }
    if (a.norms >= 0) out_ += str_cat(" norms b", a.norms, "[", a.norm_index.str(), "]");
    if (a.table >= 0) {
      out_ += str_cat(" where b", a.table, "[", a.table_index.str(), "] of ", a.table_block.str(), " in ",
                      (a.keys() + a.block - 1) / a.block);
    }
    out_ += str_cat(" row ", a.row.str(), " in ", a.rows.str(), " {\n");
    const auto inner = [&](const For& each) {
      indent(depth + 1);
      statement(each, depth + 1);
      out_ += "\n";
    };
    inner(*a.each);
    for (const Attention::Sum& sum : a.sums) inner(*sum.done);
    indent(depth);
    out_ += "} hidden " + value(a.hidden);
    for (const Attention::Sum& sum : a.sums) out_ += " share " + value(sum.share);
  }
  void statement(const WeighedProduct& w, int depth) {
    out_ +=
        str_cat("weighed ", typed(w.value), " rows ", w.rows, " from ", w.first_row.str(), " of b", w.matrix,
                " stride ", w.row_stride, " offset ", w.offset, " results ", w.extent, " from ", w.first_result.str(),
                " warps ", w.bands, " ", w.slices, " words ", w.words, " run ", w.run, " steps ", w.steps, " result ",
                w.result.str(), " in ", w.results.str(), " row ", w.row.str(), " in ", w.count.str(), " {\n");
    for (const For* each : {w.weigh.get(), w.each.get()}) {
      indent(depth + 1);
      statement(*each, depth + 1);
      out_ += "\n";
    }
    indent(depth);
    out_ += "} weights";
    for (const ScalarId weight : w.weights) out_ += " " + value(weight);
  }
  void statement(const If& branch, int depth) {
    out_ += "if " + value(branch.condition) + " {\n";
    block(*branch.body, depth + 1);
    indent(depth);
    out_ += "}";
  }
  void statement(const For& loop, int depth) {
    out_ += std::string(kind_name(loop.kind)) + " " + loop.var.str() + " in " + loop.extent.str();
    if (loop.scan) out_ += " scan";
    if (loop.until != kNoScalar) out_ += " until " + value(loop.until);
    for (const Carried& c : loop.carried) {
      out_ += "\n";
      indent(depth + 2);
      out_ += "carry " + typed(c.arg) + " from " + value(c.init) + " next " + value(c.next) + " result " +
              value(c.result) + " combine " + std::string(combine_name(c.combine));
    }
    out_ += " {\n";
    block(*loop.body, depth + 1);
    if (loop.combine_fn != nullptr) {
      indent(depth);
      out_ += "} merge (";
      for (const ScalarId id : loop.combine_fn->left) out_ += typed(id) + ", ";
      out_ += "| ";
      for (const ScalarId id : loop.combine_fn->right) out_ += typed(id) + ", ";
      out_ += ") {\n";
      block(*loop.combine_fn->body, depth + 1);
      indent(depth + 1);
      out_ += "yield";
      for (const ScalarId id : loop.combine_fn->result) out_ += " " + value(id);
      out_ += "\n";
    }
    indent(depth);
    out_ += "}";
  }

  void block(const Block& b, int depth) {
    for (const Stmt& stmt : b.stmts) {
      indent(depth);
      std::visit([&](const auto& s) { statement(s, depth); }, stmt);
      out_ += "\n";
    }
  }

  const Kernel& kernel_;
  std::string out_;
};

}  // namespace

std::string_view scalar_op_name(ScalarOp op) { return kNames[static_cast<size_t>(op)]; }
std::string print_kernel(const Kernel& kernel) { return Printer(kernel).run(); }

namespace {
class Verifier {
 public:
  explicit Verifier(const Kernel& kernel) : kernel_(kernel), defined_(kernel.scalar_types.size(), false) {}
  void run() {
    for (const ScalarId id : kernel_.scalar_arg_ids) define(id);
    block(kernel_.body, true, false);
  }

 private:
  void define(ScalarId id) {
    TATARA_CHECK(id >= 0 && static_cast<size_t>(id) < defined_.size(), "scalar out of range in ", kernel_.name);
    defined_[static_cast<size_t>(id)] = true;
  }
  void use(ScalarId id) {
    TATARA_CHECK(id >= 0 && static_cast<size_t>(id) < defined_.size() && defined_[static_cast<size_t>(id)],
                 "undefined scalar %", id, " in ", kernel_.name);
  }
  void use_optional(ScalarId id) {
    if (id != kNoScalar) use(id);
  }
  void buffer(int b) {
    TATARA_CHECK(b >= 0 && static_cast<size_t>(b) < kernel_.buffers.size(), "no buffer ", b, " in ", kernel_.name);
  }
  void block(const Block& b, bool outermost, bool in_vector) {
    for (const Stmt& stmt : b.stmts) {
      if (const auto* let = std::get_if<Let>(&stmt)) {
        for (const ScalarId id : let->scalar.operands) use(id);
        define(let->dst);
      } else if (const auto* load = std::get_if<Load>(&stmt)) {
        buffer(load->buffer);
        use_optional(load->mask);
        use_optional(load->other);
        define(load->dst);
      } else if (const auto* store = std::get_if<Store>(&stmt)) {
        buffer(store->buffer);
        use(store->value);
        use_optional(store->mask);
      } else if (const auto* index = std::get_if<IndexValue>(&stmt)) {
        use(index->value);
        use_optional(index->mask);
      } else if (const auto* branch = std::get_if<If>(&stmt)) {
        use(branch->condition);
        block(*branch->body, false, in_vector);
      } else if (const auto* tile = std::get_if<Transpose>(&stmt)) {
        buffer(tile->from);
        buffer(tile->to);
        TATARA_CHECK(!in_vector, "a tile inside of a vector loop in ", kernel_.name);
      } else if (const auto* sort = std::get_if<Sort>(&stmt)) {
        buffer(sort->from.buffer);
        if (sort->values.buffer >= 0) buffer(sort->values.buffer);
        if (sort->places.buffer >= 0) buffer(sort->places.buffer);
        TATARA_CHECK(!in_vector && sort->extent > 0 && sort->count > 0 && sort->count <= sort->extent,
                     "no such sort in ", kernel_.name);
      } else if (const auto* product = std::get_if<Product>(&stmt)) {
        check_product(*product, in_vector);
      } else if (const auto* attention = std::get_if<Attention>(&stmt)) {
        check_attention(*attention, in_vector);
      } else if (const auto* weighed = std::get_if<WeighedProduct>(&stmt)) {
        check_weighed(*weighed, in_vector);
      } else {
        loop(std::get<For>(stmt), outermost, in_vector);
      }
    }
  }
  void check_product(const Product& product, bool in_vector) {
    const size_t parts = product.left.parts.size();
    TATARA_CHECK(!in_vector && product.each->kind == LoopKind::kVector && product.each->carried.empty(),
                 "no such product in ", kernel_.name);
    TATARA_CHECK((parts == 1 || parts == Product::kParts) && product.right.parts.size() == parts,
                 "parts of a product in ", kernel_.name);
    for (const Product::Side* side : {&product.left, &product.right}) {
      for (const int b : side->parts) buffer(b);
      if (side->matrices) check_matrices(*side->matrices, parts);
    }
    TATARA_CHECK(product.left.matrices.has_value() == product.right.matrices.has_value() &&
                     (!product.span || product.left.matrices),
                 "operands of a product in ", kernel_.name);
    TATARA_CHECK(product.by_blocks ? product.left.matrices.has_value() && !product.span : !product.scales,
                 "sums of a product in ", kernel_.name);
    if (product.scales) {
      buffer(product.scales->left);
      buffer(product.scales->right);
    }
    // What is left out are whole lines of shared memory.
    TATARA_CHECK(!product.span || !product.span->is_cut() ||
                     (!product.left.matrices->along() && !product.right.matrices->along()),
                 "a span of a product in ", kernel_.name);
    TATARA_CHECK(product.left.extent % 64 == 0 && product.left.extent > 0 && product.right.extent % 8 == 0 &&
                     product.right.extent > 0 && product.right.extent <= 256,
                 "tiles of a product in ", kernel_.name);
    define(product.value);
    loop(*product.each, false, in_vector);
  }
  void check_attention(const Attention& a, bool in_vector) {
    const auto is_plain = [](const For& each) { return each.kind == LoopKind::kVector && each.carried.empty(); };
    const bool plain = std::all_of(a.sums.begin(), a.sums.end(), [&](const auto& sum) { return is_plain(*sum.done); });
    TATARA_CHECK(!in_vector && is_plain(*a.each) && plain, "no such attention in ", kernel_.name);
    Attention::each_side(a, [&](const Attention::Side& side) {
      buffer(side.buffer);
      const auto aligned = [](int64_t n) { return n % Product::Matrices::kAligned == 0; };
      TATARA_CHECK(side.rows > 0 && side.width > 0 && aligned(side.width) && side.row_stride > 0 &&
                       aligned(side.row_stride) && aligned(side.offset) && aligned(side.batch_strides[0]) &&
                       aligned(side.batch_strides[1]) && side.batches[0] > 0 && side.batches[1] > 0,
                   "an operand that the copy engine does not take in ", kernel_.name);
    });
    TATARA_CHECK(a.extent % 64 == 0 && a.extent > 0 && a.block % 16 == 0 && a.block > 0 && a.block <= 128 &&
                     !a.scores.empty() && a.scores.size() <= (a.is_sum() ? 2 : 1) && !a.sums.empty() &&
                     a.sums.size() <= (a.is_sum() ? 2 : 1) && (a.norms < 0 || !a.is_sum()),
                 "tiles of an attention in ", kernel_.name);
    if (a.table >= 0) buffer(a.table);
    if (a.norms >= 0) buffer(a.norms);
    for (const Attention::Score& score : a.scores) {
      TATARA_CHECK(score.queries.width == score.keys.width && score.queries.width <= 256 &&
                       score.keys.rows == a.keys() && score.queries.rows == a.scores[0].queries.rows,
                   "matrices of an attention in ", kernel_.name);
      define(score.product);
    }
    loop(*a.each, false, in_vector);
    use(a.hidden);
    for (const Attention::Sum& sum : a.sums) {
      TATARA_CHECK(sum.values.width <= 256 && sum.values.rows == a.keys(), "values of an attention in ", kernel_.name);
      use(sum.share);
    }
    for (const Attention::Sum& sum : a.sums) {
      define(sum.result);
      loop(*sum.done, false, in_vector);
    }
  }
  void check_weighed(const WeighedProduct& w, bool in_vector) {
    const auto is_plain = [](const For& each) { return each.kind == LoopKind::kVector && each.carried.empty(); };
    const auto aligned = [](int64_t n) { return n >= 0 && n % Product::Matrices::kAligned == 0; };
    TATARA_CHECK(!in_vector && is_plain(*w.weigh) && is_plain(*w.each), "no such weighed product in ", kernel_.name);
    buffer(w.matrix);
    TATARA_CHECK(aligned(w.row_stride) && aligned(w.offset), "rows of a weighed product in ", kernel_.name);
    const int64_t band = WeighedProduct::kBand * w.bands, step = w.words * w.parts();
    TATARA_CHECK(w.bands > 0 && w.slices > 0 && w.extent > 0 && w.extent % band == 0 && w.rows > 0 && w.rows % 8 == 0 &&
                     w.rows <= WeighedProduct::kMostRows,
                 "tiles of a weighed product in ", kernel_.name);
    TATARA_CHECK(w.words > 0 && w.parts() > 0 && w.weigh->extent.is_const() && step % 4 == 0 && w.words % 4 == 0 &&
                     w.steps > 0 && w.weigh->extent.const_value() % (w.words * w.steps * WeighedProduct::kLanes) == 0 &&
                     (w.run == 1 || w.run % w.words == 0),
                 "words of a weighed product in ", kernel_.name);
    loop(*w.weigh, false, in_vector);
    for (const ScalarId weight : w.weights) use(weight);
    define(w.value);
    loop(*w.each, false, in_vector);
  }
  void check_matrices(const Product::Matrices& m, size_t parts) {
    const auto aligned = [&](int64_t n) { return n % m.aligned() == 0; };
    const int64_t other = m.along() ? m.row_stride : m.inner_stride;
    TATARA_CHECK((m.bytes == 2 || (m.bytes == 1 && m.along())) && parts == 1 && (m.along() || m.row_stride == 1) &&
                     other > 0 && aligned(other) && aligned(m.batch_stride) && aligned(m.offset) && m.batches > 0 &&
                     m.rows > 0 && m.inner > 0,
                 "an operand that the copy engine does not take in ", kernel_.name);
  }
  void loop(const For& f, bool outermost, bool in_vector) {
    TATARA_CHECK(outermost || f.kind != LoopKind::kParallel, "a parallel loop inside another in ", kernel_.name);
    TATARA_CHECK(!(in_vector && f.kind == LoopKind::kVector), "nested vector loops in ", kernel_.name);
    TATARA_CHECK(!f.scan || (f.kind == LoopKind::kVector && f.combine_fn == nullptr), "no such scan, in ",
                 kernel_.name);
    for (const Carried& c : f.carried) {
      use(c.init);
      define(c.arg);
      TATARA_CHECK(c.combine != Combine::kCustom || f.combine_fn != nullptr, "no merge function in ", kernel_.name);
    }
    block(*f.body, f.kind == LoopKind::kParallel, in_vector || f.kind == LoopKind::kVector);
    use_optional(f.until);
    TATARA_CHECK(f.until == kNoScalar || (f.kind == LoopKind::kSerial && f.carried.empty() && !in_vector),
                 "no such loop ends early, in ", kernel_.name);
    for (const Carried& c : f.carried) {
      use(c.next);
      define(c.result);
    }
  }

  const Kernel& kernel_;
  std::vector<bool> defined_;
};
}  // namespace

void verify_kernel(const Kernel& kernel) { Verifier(kernel).run(); }

}  // namespace tatara::loops
