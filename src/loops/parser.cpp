#include "loops/parser.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "loops/line_parser.h"

namespace tatara::loops {
namespace {

class Parser : LineParser {
 public:
  explicit Parser(std::string_view text) : LineParser(text) {}

  Kernel run() {
    header();
    kernel_.body = block();
    if (line() != "}") fail("the end of the kernel is missing");
    return std::move(kernel_);
  }

 private:
  // ---- the kernel ----

  void header() {
    std::string_view text = line();
    if (!take(text, "kernel ")) fail("no kernel");
    const auto name = take_until(text, "(");
    if (!name || !text.ends_with(") {")) fail("malformed head");
    kernel_.name = *name;
    text.remove_suffix(3);
    const std::vector<std::string_view> parts = split_commas(text);
    for (std::string_view part : parts) {
      if (!take(part, "size ")) continue;
      const size_t sign = part.find(" signed");
      const IntRange range = sign == std::string_view::npos ? IntRange{0, INT64_MAX} : IntRange{};
      kernel_.sizes.push_back(kernel_.ctx->symbol(part.substr(0, sign), range));
    }
    for (std::string_view part : parts) {
      if (part.starts_with("size ")) continue;
      if (take(part, "gpu ")) {
        mapping(part);
        continue;
      }
      if (take(part, "scalar ")) {
        const ScalarId id = typed(part);
        kernel_.scalar_arg_ids.push_back(id);
        kernel_.scalar_args.push_back(kernel_.scalar_types[static_cast<size_t>(id)]);
      } else {
        argument(part);
      }
    }
    ++at_;
  }

  void mapping(std::string_view text) {
    if (!take(text, "threads ")) fail("malformed mapping");
    const auto threads = take_until(text, " row ");
    const auto row = take_until(text, " lanes ");
    if (!threads || !row) fail("malformed mapping");
    // What may be missing comes after the lanes.
    const auto before_shared = take_until(text, " shared ");
    const auto resident = before_shared ? take_until(text, " resident ") : std::nullopt;
    if (before_shared && !resident) fail("no resident blocks");
    const int64_t shared = resident ? integer(*resident) : 0;
    const int blocks = resident ? static_cast<int>(integer(text)) : 0;
    if (before_shared) text = *before_shared;
    const auto before_items = take_until(text, " items ");
    const int64_t items = before_items ? integer(text) : 0;
    if (before_items) text = *before_items;
    const auto before_tiles = take_until(text, " tiles");
    if (before_tiles) text = *before_tiles;
    const auto before_column = take_until(text, " column ");
    const int64_t column = before_column ? integer(text) : 1;
    if (before_column) text = *before_column;
    const auto passes = take_until(text, " passes ");  // then `text` is their number
    const int64_t numbers[] = {integer(*threads),          integer(*row), integer(passes ? *passes : text),
                               passes ? integer(text) : 1, items,         column};
    for (const int64_t n : numbers) {
      if (n < 0 || n > 1024) fail("a mapping out of range");
    }
    kernel_.gpu = {static_cast<int>(numbers[0]),
                   static_cast<int>(numbers[1]),
                   static_cast<int>(numbers[2]),
                   static_cast<int>(numbers[3]),
                   static_cast<int>(numbers[4]),
                   static_cast<int>(numbers[5]),
                   before_tiles.has_value(),
                   shared,
                   blocks};
  }

  void argument(std::string_view text) {
    BufferArg arg;
    static constexpr std::string_view kKinds[] = {"in ", "out ", "inout ", "scratch ", "value "};
    size_t kind = 0;
    while (kind < 5 && !take(text, kKinds[kind])) ++kind;
    if (kind == 5) fail("malformed argument");
    arg.kind = static_cast<ArgKind>(kind);
    const auto name = take_until(text, ": ");
    const auto type = take_until(text, "[");
    if (!name || !type || !text.ends_with("]")) fail("malformed argument");
    arg.name = *name;
    arg.dtype = dtype(*type);
    arg.numel = expr(text.substr(0, text.size() - 1));
    kernel_.buffers.push_back(std::move(arg));
  }

  /// Statements up to the line that closes the block, which stays.
  Block block() {
    Block result;
    while (!line().starts_with("}") && !line().starts_with("yield")) result.stmts.push_back(statement());
    return result;
  }

  Stmt statement() {
    const std::string_view text = line();
    if (text.starts_with("%")) return definition();
    if (text.starts_with("store")) return store();
    if (text.starts_with("index ")) return index_value();
    if (text.starts_with("if ")) return branch();
    if (text.starts_with("transpose ")) return transpose();
    if (text.starts_with("sort ")) return sort();
    if (text.starts_with("product ")) return product();
    if (text.starts_with("attention ")) return attention();
    if (text.starts_with("weighed ")) return weighed_product();
    return loop();
  }

  Stmt definition() {
    std::string_view text = line();
    const auto left = take_until(text, " = ");
    if (!left) fail("malformed statement");
    const ScalarId dst = typed(*left);
    if (take(text, "load ")) {
      Load load{dst, buffer(text), Expr()};
      const auto where = take_until(text, "]");
      if (!where) fail("malformed load");
      load.index = expr(*where);
      if (take(text, " if ")) {
        const auto mask = take_until(text, " else ");
        if (!mask) fail("a masked load without else");
        load.mask = value(*mask);
        load.other = value(text);
      }
      ++at_;
      return load;
    }
    const auto name = take_until(text, "(");
    if (!name || !text.ends_with(")")) fail("malformed operation");
    text.remove_suffix(1);
    Scalar s{};
    s.op = operation(*name);
    s.dtype = kernel_.scalar_types[static_cast<size_t>(dst)];
    operands(s, text);
    ++at_;
    return Let{dst, std::move(s)};
  }

  ScalarOp operation(std::string_view name) const {
    for (int i = 0; i <= static_cast<int>(ScalarOp::kPhilox); ++i) {
      if (scalar_op_name(static_cast<ScalarOp>(i)) == name) return static_cast<ScalarOp>(i);
    }
    fail(str_cat("no operation ", name));
  }

  void operands(Scalar& s, std::string_view text) {
    if (s.op == ScalarOp::kIndex) {
      s.index = expr(text);
      return;
    }
    const std::vector<std::string_view> parts = split_commas(text);
    if (s.op == ScalarOp::kConst) {
      if (parts.size() != (is_complex(s.dtype) ? 2U : 1U)) fail("malformed constant");
      if (is_complex(s.dtype) || is_floating(s.dtype)) {
        s.const_re = real(parts[0]);
        if (is_complex(s.dtype)) s.const_im = real(parts[1]);
      } else {
        s.const_int = integer(parts[0]);
      }
      return;
    }
    for (std::string_view part : parts) {
      if (take(part, "lane=")) {
        s.lane = static_cast<int>(integer(part));
      } else {
        s.operands.push_back(value(part));
      }
    }
  }

  Stmt store() {
    std::string_view text = line();
    const auto head = take_until(text, " ");
    if (!head) fail("malformed store");
    Store result{};
    static constexpr std::string_view kModes[] = {"", ".add", ".mul", ".min", ".max"};
    std::string_view mode = head->substr(5);
    if (mode.ends_with(".atomic")) {
      result.atomic = true;
      mode.remove_suffix(7);
    }
    size_t number = 0;
    while (number < 5 && kModes[number] != mode) ++number;
    if (number == 5) fail("no such store");
    result.mode = static_cast<StoreMode>(number);
    result.buffer = buffer(text);
    const auto where = take_until(text, "] = ");
    if (!where) fail("malformed store");
    result.index = expr(*where);
    const auto stored = take_until(text, " if ");
    result.value = value(stored ? *stored : text);
    if (stored) result.mask = value(text);
    ++at_;
    return result;
  }

  Stmt index_value() {
    std::string_view text = line();
    take(text, "index ");
    const auto name = take_until(text, " = ");
    const auto source = take_until(text, " in ");
    if (!name || !source) fail("malformed index");
    IndexValue result{};
    result.value = value(*source);
    if (const size_t at = text.rfind(" if "); at != std::string_view::npos) {
      result.mask = value(text.substr(at + 4));
      text = text.substr(0, at);
    }
    const auto flag = [&](std::string_view word) {
      if (!text.ends_with(word)) return false;
      text.remove_suffix(word.size());
      return true;
    };
    result.check = flag(" check");
    result.wrap = flag(" wrap");
    result.size = expr(text);
    result.symbol = kernel_.ctx->loop_symbol(*name, result.size);
    ++at_;
    return result;
  }

  Stmt transpose() {
    std::string_view text = line();
    take(text, "transpose ");
    Transpose tile{};
    const auto part = [&](std::string_view mark) { return expr(part_of(text, mark, "transpose")); };
    tile.to = buffer(text);
    tile.to_index = part("] stride ");
    tile.to_stride = part(" = ");
    tile.from = buffer(text);
    tile.from_index = part("] stride ");
    tile.from_stride = part(" rows ");
    tile.rows = part(" columns ");
    tile.columns = expr(text);
    ++at_;
    return tile;
  }

  Stmt sort() {
    std::string_view text = line();
    Sort result;
    const auto part = [&](std::string_view mark) { return part_of(text, mark, "sort"); };
    const auto row = [&](std::string_view mark) {
      Sort::Row r;
      if (take(text, "none")) {
        part(mark);
        return r;
      }
      r.buffer = buffer(text);
      r.index = expr(part("] stride "));
      r.stride = expr(part(mark));
      return r;
    };
    take(text, "sort values ");
    result.values = row(" places ");
    result.places = row(" = ");
    result.from = row(" extent ");
    result.extent = integer(part(" count "));
    result.count = integer(part(" "));
    result.descending = text == "descending";
    ++at_;
    return result;
  }

  /// What stands before `mark`, which is taken too; nullopt where `end` comes first.
  static std::optional<std::string_view> take_before(std::string_view& text, std::string_view mark,
                                                     std::string_view end) {
    const size_t at = text.find(mark), stop = text.find(end);
    if (at == std::string_view::npos || at > stop) return std::nullopt;
    return take_until(text, mark);
  }

  Stmt product() {
    std::string_view text = line();
    Product result;
    const auto part = [&](std::string_view mark) { return part_of(text, mark, "product"); };
    const auto side = [&](std::string_view mark) {
      Product::Side s;
      take(text, " tile ");
      s.extent = integer(part(" from "));
      if (const auto first = take_before(text, " matrix [", mark)) {
        s.first = expr(*first);
        s.matrices.emplace();
        Product::Matrices& m = *s.matrices;
        m.number = expr(part("] of "));
        s.parts.push_back(product_buffer(part(" sizes ")));
        m.batches = integer(part(" "));
        m.rows = integer(part(" "));
        m.inner = integer(part(" strides "));
        m.batch_stride = integer(part(" "));
        m.row_stride = integer(part(" "));
        m.inner_stride = integer(part(" offset "));
        std::string_view offset = part(mark);
        const auto takes = [&](std::string_view word) {
          const bool found = offset.ends_with(word);
          if (found) offset.remove_suffix(word.size());
          return found;
        };
        if (takes(" bytes")) m.bytes = 1;
        m.interleaved = takes(" interleaved");
        m.offset = integer(offset);
        return s;
      }
      s.first = expr(part(" at ["));
      s.index = expr(part("] of "));
      std::string_view buffers = part(mark);
      while (!buffers.empty()) {
        const auto one = take_until(buffers, " ");
        s.parts.push_back(product_buffer(one ? *one : buffers));
        if (!one) break;
      }
      return s;
    };
    take(text, "product ");
    result.value = typed(part(" blocks "));
    result.blocks = expr(part(" left"));
    result.left = side(" right");
    const auto has = [&](std::string_view mark) { return text.find(mark) != std::string_view::npos; };
    const bool has_span = has(" span "), has_scales = has(" scales ");
    result.by_blocks = has(" by blocks");
    result.right = side(has_span ? " span " : result.by_blocks ? " by blocks" : " row ");
    if (has_span) {
      const Expr first = expr(part(" to "));
      result.span = Product::Span{first, expr(part(" row "))};
    }
    if (has_scales) {
      Product::Scales& s = result.scales.emplace();
      part(" scales ");
      s.left = buffer(text);
      s.left_index = expr(part("] strides "));
      s.left_row = integer(part(" "));
      s.left_block = integer(part(" "));
      s.right = buffer(text);
      s.right_index = expr(part("] stride "));
      s.right_block = integer(part(" row "));
    } else if (result.by_blocks) {
      part(" row ");
    }
    const std::string_view name = part(" in ");
    result.rows = expr(part(" {"));
    result.row = kernel_.ctx->loop_symbol(name, result.rows);
    ++at_;
    result.each = std::make_unique<For>(std::get<For>(loop()));
    if (line() != "}") fail("a product has no end");
    ++at_;
    return result;
  }

  Stmt attention() {
    std::string_view text = line();
    Attention result;
    const auto part = [&](std::string_view mark) { return part_of(text, mark, "attention"); };
    const auto side = [&](std::string_view mark) {
      Attention::Side s;
      s.buffer = product_buffer(part(" sizes "));
      for (int64_t* n : {&s.batches[0], &s.batches[1], &s.rows}) *n = integer(part(" "));
      s.width = integer(part(" strides "));
      for (int64_t* n : {&s.batch_strides[0], &s.batch_strides[1]}) *n = integer(part(" "));
      s.row_stride = integer(part(" offset "));
      s.offset = integer(part(" at ["));
      s.number[0] = expr(part("] ["));
      s.number[1] = expr(part(mark));
      return s;
    };
    take(text, "attention rows ");
    result.extent = integer(part(" from "));
    result.first = expr(part(" keys "));
    result.block = integer(part(" "));
    const std::string_view form = part(" product ");
    using Form = Attention::Form;
    result.form = form == "sum" ? Form::kSum : form == "softmax" ? Form::kSoftmax : Form::kSoftmaxOrZero;
    do {
      Attention::Score& score = result.scores.emplace_back();
      score.product = typed(part(" of "));
      score.queries = side("] and ");
      score.keys = side("]");
    } while (take(text, " product "));
    while (take(text, " result ")) {
      Attention::Sum& sum = result.sums.emplace_back();
      sum.result = typed(part(" of "));
      sum.values = side("]");
    }
    if (take(text, " norms b")) result.norms = static_cast<int>(integer(part("[")));
    const std::string_view norm_index = result.norms >= 0 ? part("]") : std::string_view();
    if (take(text, " where b")) {
      result.table = static_cast<int>(integer(part("[")));
      const std::string_view index = part("] of "), block = part(" in ");
      result.table_block = kernel_.ctx->loop_symbol(block, expr(part(" row ")));
      result.table_index = expr(index);
    } else if (!take(text, " row ")) {
      fail("malformed attention");
    }
    const std::string_view name = part(" in ");
    result.rows = expr(part(" {"));
    result.row = kernel_.ctx->loop_symbol(name, result.rows);
    if (result.norms >= 0) result.norm_index = expr(norm_index);
    ++at_;
    result.each = std::make_unique<For>(std::get<For>(loop()));
    for (Attention::Sum& sum : result.sums) sum.done = std::make_unique<For>(std::get<For>(loop()));
    text = line();
    if (!take(text, "} hidden ")) fail("an attention has no end");
    ScalarId* next = &result.hidden;
    for (Attention::Sum& sum : result.sums) {
      *next = value(part(" share "));
      next = &sum.share;
    }
    *next = value(text);
    ++at_;
    return result;
  }

  Stmt weighed_product() {
    std::string_view text = line();
    WeighedProduct result;
    const auto part = [&](std::string_view mark) { return part_of(text, mark, "weighed product"); };
    take(text, "weighed ");
    result.value = typed(part(" rows "));
    result.rows = integer(part(" from "));
    result.first_row = expr(part(" of "));
    result.matrix = product_buffer(part(" stride "));
    result.row_stride = integer(part(" offset "));
    result.offset = integer(part(" results "));
    result.extent = integer(part(" from "));
    result.first_result = expr(part(" warps "));
    result.bands = integer(part(" "));
    result.slices = integer(part(" words "));
    result.words = integer(part(" run "));
    result.run = integer(part(" steps "));
    result.steps = integer(part(" result "));
    const std::string_view name = part(" in ");
    result.results = expr(part(" row "));
    result.result = kernel_.ctx->loop_symbol(name, result.results);
    const std::string_view row = part(" in ");
    result.count = expr(part(" {"));
    result.row = kernel_.ctx->loop_symbol(row, result.count);
    ++at_;
    result.weigh = std::make_unique<For>(std::get<For>(loop()));
    result.each = std::make_unique<For>(std::get<For>(loop()));
    text = line();
    if (!take(text, "} weights ")) fail("a weighed product has no end");
    for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
      const auto one = take_until(text, " ");
      result.weights.push_back(value(one ? *one : text));
      if (!one) break;
    }
    ++at_;
    return result;
  }

  Stmt branch() {
    std::string_view text = line();
    take(text, "if ");
    const auto condition = take_until(text, " {");
    if (!condition) fail("malformed branch");
    If result{value(*condition), nullptr};
    ++at_;
    result.body = std::make_unique<Block>(block());
    if (line() != "}") fail("a branch has no end");
    ++at_;
    return result;
  }

  Stmt loop() {
    For result;
    std::string_view text = line();
    static constexpr std::string_view kKinds[] = {"for ", "parallel ", "vector ", "unroll "};
    size_t kind = 0;
    while (kind < 4 && !take(text, kKinds[kind])) ++kind;
    if (kind == 4) fail("no such statement");
    result.kind = static_cast<LoopKind>(kind);
    const auto name = take_until(text, " in ");
    if (!name) fail("malformed loop");
    bool open = text.ends_with(" {");
    if (open) text.remove_suffix(2);
    if (const size_t until = text.find(" until "); until != std::string_view::npos) {
      result.until = value(text.substr(until + 7));
      text = text.substr(0, until);
    }
    result.scan = text.ends_with(" scan");
    if (result.scan) text.remove_suffix(5);
    result.extent = expr(text);
    result.var = kernel_.ctx->loop_symbol(*name, result.extent);
    ++at_;
    while (!open) {
      std::string_view carry = line();
      open = carry.ends_with(" {");
      if (open) carry.remove_suffix(2);
      result.carried.push_back(carried(carry));
      ++at_;
    }
    result.body = std::make_unique<Block>(block());
    if (line().starts_with("} merge (")) result.combine_fn = merge(result.carried.size());
    if (line() != "}") fail("a loop has no end");
    ++at_;
    return result;
  }

  Carried carried(std::string_view text) {
    Carried c{};
    if (!take(text, "carry ")) fail("no carried value");
    const auto arg = take_until(text, " from ");
    const auto init = take_until(text, " next ");
    const auto next = take_until(text, " result ");
    const auto result = take_until(text, " combine ");
    if (!arg || !init || !next || !result) fail("malformed carried value");
    c.arg = typed(*arg);
    c.dtype = kernel_.scalar_types[static_cast<size_t>(c.arg)];
    c.init = value(*init);
    c.next = value(*next);
    c.result = value(*result);
    kernel_.scalar_types[static_cast<size_t>(c.result)] = c.dtype;
    static constexpr std::string_view kNames[] = {"none", "add", "mul", "min", "max", "and", "or", "xor", "custom"};
    size_t number = 0;
    while (number < 9 && kNames[number] != text) ++number;
    if (number == 9) fail("no such combination");
    c.combine = static_cast<Combine>(number);
    return c;
  }

  std::unique_ptr<CombineFn> merge(size_t count) {
    std::string_view text = line();
    take(text, "} merge (");
    const auto left = take_until(text, "| ");
    const auto right = take_until(text, ") {");
    if (!left || !right) fail("malformed merge");
    auto fn = std::make_unique<CombineFn>();
    for (const std::string_view part : split_commas(*left)) fn->left.push_back(typed(part));
    for (const std::string_view part : split_commas(*right)) fn->right.push_back(typed(part));
    ++at_;
    fn->body = std::make_unique<Block>(block());
    std::string_view yield = line();
    if (!take(yield, "yield")) fail("a merge without yield");
    for (yield = trimmed(yield); !yield.empty(); yield = trimmed(yield)) {
      const auto one = take_until(yield, " ");
      fn->result.push_back(value(one ? *one : yield));
      if (!one) break;
    }
    if (fn->left.size() != count || fn->right.size() != count || fn->result.size() != count)
      fail("a merge of other values");
    ++at_;
    return fn;
  }
};

}  // namespace

Kernel parse_kernel(std::string_view text) { return Parser(text).run(); }

}  // namespace tatara::loops
