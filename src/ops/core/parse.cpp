#include "ops/core/parse.h"

#include <charconv>
#include <map>
#include <optional>
#include <vector>

#include "ops/core/op_def.h"
#include "support/error.h"

namespace tatara {
namespace {

/// Parts between commas that stand outside of brackets and quotes.
std::vector<std::string_view> split_top(std::string_view text, char separator = ',') {
  std::vector<std::string_view> parts;
  int depth = 0;
  bool quoted = false;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '[' || c == '(' || c == '{') ++depth;
    if (c == ']' || c == ')' || c == '}') --depth;
    if (c == separator && depth == 0) {
      parts.push_back(trim(text.substr(start, i - start)));
      start = i + 1;
    }
  }
  const std::string_view last = trim(text.substr(start));
  if (!last.empty() || !parts.empty()) parts.push_back(last);
  return parts;
}

class GraphParser {
 public:
  GraphParser(std::string_view text, std::shared_ptr<ExprContext> ctx)
      : text_(text), ctx_(ctx), graph_(std::move(ctx)) {}

  Graph parse() {
    size_t at = 0;
    bool ended = false;
    while (at < text_.size() && !ended) {
      const size_t end = std::min(text_.find('\n', at), text_.size());
      ++line_;
      const std::string_view line = trim(text_.substr(at, end - at));
      at = end + 1;
      if (line.empty()) continue;
      ended = statement(line);
    }
    if (!ended) fail("the closing brace is missing");
    return std::move(graph_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw InvalidArgument(str_cat("graph text, line ", line_, ": ", what));
  }

  /// True at the end of the graph.
  bool statement(std::string_view line) {
    if (line == "}") return true;
    if (line.starts_with("graph(")) {
      inputs(line);
    } else if (line.starts_with("symbol ")) {
      symbol(line.substr(7));
    } else if (line.starts_with("fact ")) {
      ctx_->assume(ctx_->parse(line.substr(5)));
    } else if (line.starts_with("write input ")) {
      write(line.substr(12));
    } else if (line.starts_with("return (")) {
      if (!line.ends_with(")")) fail("unclosed return");
      for (const std::string_view part : split_top(line.substr(8, line.size() - 9))) output(part);
    } else {
      node(line);
    }
    return false;
  }

  void inputs(std::string_view line) {
    const std::string_view tail = ") {";
    if (!line.ends_with(tail)) fail("expected ') {'");
    for (std::string_view part : split_top(line.substr(6, line.size() - 6 - tail.size()))) {
      std::string name;
      if (part.ends_with("\"")) {
        const size_t quote = part.find('"');
        name = part.substr(quote + 1, part.size() - quote - 2);
        part = trim(part.substr(0, quote));
      }
      const auto [value, type] = declaration(part);
      define(value, graph_.add_input(type, std::move(name)));
    }
  }

  /// "s0 [2, 100] = 6"
  void symbol(std::string_view rest) {
    const size_t open = rest.find(" ["), close = rest.find(']');
    const auto ends = split_top(rest.substr(open + 2, close - open - 2));
    if (open == std::string_view::npos || close == std::string_view::npos || ends.size() != 2) fail("expected a range");
    const size_t equals = rest.find(" = ", close);
    const auto hint = equals == std::string_view::npos ? std::nullopt : std::optional(integer(rest.substr(equals + 3)));
    static_cast<void>(ctx_->symbol(rest.substr(0, open), {integer(ends[0]), integer(ends[1])}, hint));
  }

  void write(std::string_view rest) {
    const size_t arrow = rest.find(" <- ");
    if (arrow == std::string_view::npos) fail("expected '<-'");
    const std::string_view value = rest.substr(arrow + 4);
    const size_t count = value.find(", counted ");
    const int times = count == std::string_view::npos ? 1 : static_cast<int>(integer(value.substr(count + 10)));
    graph_.add_input_write(static_cast<int>(integer(rest.substr(0, arrow))), use(value.substr(0, count)), times);
  }

  void output(std::string_view part) {
    OutputAlias alias;
    using Sharing = OutputAlias::Sharing;
    using Words = std::pair<std::string_view, Sharing>;
    for (const auto& [words, sharing] :
         {Words(" may share", Sharing::kMay), Words(" own", Sharing::kOwn), Words(" must not share", Sharing::kMustNot),
          Words(" given", Sharing::kGiven)}) {
      if (!part.ends_with(words)) continue;
      alias.sharing = sharing;
      part.remove_suffix(words.size());
    }
    if (const size_t group = part.find(" group "); group != std::string_view::npos) {
      alias.group = static_cast<int>(integer(part.substr(group + 7)));
      part = part.substr(0, group);
    }
    const size_t mark = part.find(" alias of ");
    const std::string_view value = part.substr(0, mark);
    if (mark != std::string_view::npos) {
      std::string_view rest = part.substr(mark + 10);
      alias.kind = rest.starts_with("input ") ? OutputAlias::Kind::kInput : OutputAlias::Kind::kOutput;
      rest = rest.substr(rest.find(' ') + 1);
      const size_t at = rest.find(" at ");
      if (at != std::string_view::npos) alias.storage_offset = ctx_->parse(rest.substr(at + 4));
      alias.index = static_cast<int>(integer(rest.substr(0, at)));
    }
    graph_.add_output(use(value), alias);
  }

  void node(std::string_view line) {
    const size_t comment = line.find("   # ");
    constexpr std::string_view kAgain = "computed again (";
    const size_t mark = comment == std::string_view::npos ? comment : line.find(kAgain, comment);
    const int again =
        mark == std::string_view::npos
            ? 0
            : static_cast<int>(integer(line.substr(mark + kAgain.size(), line.size() - mark - kAgain.size() - 1)));
    line = trim(line.substr(0, comment));
    const size_t equals = line.find(" = ");
    if (equals == std::string_view::npos) fail("expected a node");
    std::vector<std::string_view> names;
    std::vector<TensorType> types;
    for (const std::string_view part : split_top(line.substr(0, equals))) {
      auto [value, type] = declaration(part);
      names.push_back(value);
      types.push_back(std::move(type));
    }
    const std::string_view call = line.substr(equals + 3);
    const size_t open = call.find('(');
    if (open == std::string_view::npos || !call.ends_with(")")) fail("expected a call");
    const OpDef* op = OpRegistry::global().find(call.substr(0, open));
    if (op == nullptr) fail(str_cat("no operator ", call.substr(0, open)));
    std::vector<Arg> args;
    for (std::string_view part : split_top(call.substr(open + 1, call.size() - open - 2))) {
      if (args.size() >= op->schema.args.size()) fail("too many arguments");
      const ArgSpec& spec = op->schema.args[args.size()];
      if (spec.keyword_only && part.starts_with(spec.name + "=")) part = part.substr(spec.name.size() + 1);
      args.push_back(argument(spec, part));
    }
    const NodeId id = graph_.add_node(op, std::move(args), std::move(types));
    graph_.node(id).again = again;
    const std::vector<ValueId> outputs = graph_.node(id).outputs;
    for (size_t i = 0; i < names.size(); ++i) define(names[i], outputs[i]);
  }

  Arg argument(const ArgSpec& spec, std::string_view text) {
    if (text == "None") return NoneArg{};
    if (text.starts_with("%")) return TensorArg{use(text)};
    if (text == "True" || text == "False") return Scalar(text == "True");
    if (text.starts_with("\"")) return std::string(text.substr(1, text.size() - 2));
    if (text.starts_with("@")) return device(text.substr(1));
    if (text.starts_with("b[")) {
      std::vector<bool> list;
      for (const std::string_view item : split_top(inside(text, 2))) list.push_back(item == "True");
      return list;
    }
    if (text.starts_with("f[")) {
      std::vector<double> list;
      for (const std::string_view item : split_top(inside(text, 2))) list.push_back(real(item));
      return list;
    }
    if (text.starts_with("[")) return list(spec, inside(text, 1));
    if (text.starts_with("{")) return Scalar(ctx_->parse(inside(text, 1)));
    if (text.starts_with("complex(")) {
      const auto parts = split_top(inside(text, 8));
      if (parts.size() != 2) fail("malformed complex number");
      return Scalar(std::complex<double>(real(parts[0]), real(parts[1])));
    }
    if (spec.type == ArgType::kDType) {
      const auto dtype = parse_dtype(text);
      if (!dtype) fail("unknown element type");
      return *dtype;
    }
    if (text.find_first_of(".ein") != std::string_view::npos) return Scalar(real(text));
    return Scalar(integer(text));
  }

  Arg list(const ArgSpec& spec, std::string_view text) {
    if (spec.type == ArgType::kTensorList || spec.type == ArgType::kOptionalTensorList) {
      TensorList values;
      for (const std::string_view item : split_top(text))
        values.values.push_back(item == "None" ? kNoValue : use(item));
      return values;
    }
    return SymInts{exprs(text)};
  }

  std::string_view inside(std::string_view text, size_t prefix) const {
    return text.substr(prefix, text.size() - prefix - 1);
  }

  std::vector<Expr> exprs(std::string_view text) {
    std::vector<Expr> values;
    for (const std::string_view item : split_top(text)) values.push_back(ctx_->parse(item));
    return values;
  }

  int64_t integer(std::string_view text) const {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) fail(str_cat("malformed number '", text, "'"));
    return value;
  }

  double real(std::string_view text) const {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) fail(str_cat("malformed number '", text, "'"));
    return value;
  }

  Device device(std::string_view text) const {
    Device result;
    const size_t colon = text.find(':');
    const std::string_view kind = text.substr(0, colon);
    if (kind == "cuda") {
      result.kind = DeviceKind::kCuda;
    } else if (kind == "meta") {
      result.kind = DeviceKind::kMeta;
    } else if (kind != "cpu") {
      fail("unknown device");
    }
    if (colon != std::string_view::npos) result.index = static_cast<int16_t>(integer(text.substr(colon + 1)));
    return result;
  }

  /// "%2: f32[4, s0; strides 1, 4]@cuda:0#"
  std::pair<std::string_view, TensorType> declaration(std::string_view part) {
    const size_t colon = part.find(": ");
    const size_t open = part.find('[');
    const size_t close = part.rfind(']');
    if (colon == std::string_view::npos || open == std::string_view::npos || close == std::string_view::npos) {
      fail("expected a value with its type");
    }
    TensorType type;
    const auto dtype = parse_dtype(part.substr(colon + 2, open - colon - 2));
    if (!dtype) fail("unknown element type");
    type.dtype = *dtype;
    const std::string_view shape = part.substr(open + 1, close - open - 1);
    const size_t semicolon = shape.find("; strides ");
    type.sizes = exprs(shape.substr(0, semicolon));
    type.strides = semicolon == std::string_view::npos ? contiguous_strides(*ctx_, type.sizes)
                                                       : exprs(shape.substr(semicolon + 10));
    std::string_view rest = part.substr(close + 1);
    if (rest.ends_with("#")) {
      type.is_wrapped_number = true;
      rest.remove_suffix(1);
    }
    if (rest.starts_with("@")) type.device = device(rest.substr(1));
    return {part.substr(0, colon), std::move(type)};
  }

  void define(std::string_view name, ValueId id) {
    if (!values_.emplace(std::string(name), id).second) fail(str_cat(name, " is defined twice"));
  }
  ValueId use(std::string_view name) const {
    const auto found = values_.find(std::string(name));
    if (found == values_.end()) fail(str_cat(name, " is not defined"));
    return found->second;
  }

  std::string_view text_;
  std::shared_ptr<ExprContext> ctx_;
  Graph graph_;
  std::map<std::string, ValueId, std::less<>> values_;
  int line_ = 0;
};

/// Whether a bound argument may stand for the schema's type.
bool fits(const ArgSpec& spec, const Arg& arg) {
  if (std::holds_alternative<NoneArg>(arg)) return true;  // optional ones, and trailing options of factories
  switch (spec.type) {
    case ArgType::kTensor:
    case ArgType::kOptionalTensor: return std::holds_alternative<TensorArg>(arg) || std::holds_alternative<Scalar>(arg);
    case ArgType::kTensorOrScalar: return std::holds_alternative<TensorArg>(arg) || std::holds_alternative<Scalar>(arg);
    case ArgType::kTensorList:
    case ArgType::kOptionalTensorList: return std::holds_alternative<TensorList>(arg);
    case ArgType::kScalar:
    case ArgType::kOptionalScalar:
    case ArgType::kInt:
    case ArgType::kOptionalInt:
    case ArgType::kFloat:
    case ArgType::kOptionalFloat:
    case ArgType::kBool:
    case ArgType::kOptionalBool: return std::holds_alternative<Scalar>(arg) || std::holds_alternative<TensorArg>(arg);
    case ArgType::kIntList:
    case ArgType::kOptionalIntList: return std::holds_alternative<SymInts>(arg) || std::holds_alternative<Scalar>(arg);
    case ArgType::kFloatList: return std::holds_alternative<std::vector<double>>(arg);
    case ArgType::kBoolList: return std::holds_alternative<std::vector<bool>>(arg);
    case ArgType::kDType: return std::holds_alternative<DType>(arg);
    case ArgType::kDevice: return std::holds_alternative<Device>(arg);
    case ArgType::kString:
    case ArgType::kOptionalString:
    case ArgType::kMemoryFormat:
    case ArgType::kLayout: return std::holds_alternative<std::string>(arg);
    case ArgType::kGenerator: return false;
  }
  return false;
}

}  // namespace

Graph parse_graph(std::string_view text, std::shared_ptr<ExprContext> ctx) {
  return GraphParser(text, std::move(ctx)).parse();
}

void verify_graph(const Graph& graph) {
  const auto count = static_cast<ValueId>(graph.num_values());
  for (ValueId v = 0; v < count; ++v) {
    const Value& value = graph.value(v);
    const TensorType& type = graph.type(v);
    TATARA_CHECK(type.sizes.size() == type.strides.size(), "%", v, ": sizes and strides of different lengths");
    for (const Expr e : type.sizes) TATARA_CHECK(e.valid(), "%", v, ": a size is missing");
    for (const Expr e : type.strides) TATARA_CHECK(e.valid(), "%", v, ": a stride is missing");
    TATARA_CHECK(value.producer >= 0 || value.input_index >= 0, "%", v, " is neither an input nor a result");
  }
  std::vector<bool> defined(graph.num_values(), false);
  for (const ValueId v : graph.inputs()) defined[static_cast<size_t>(v)] = true;
  const auto check_use = [&](ValueId v, std::string_view where) {
    TATARA_CHECK(v >= 0 && v < count && defined[static_cast<size_t>(v)], where, ": %", v,
                 " is used before it is defined");
  };
  for (size_t n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.nodes()[n];
    TATARA_CHECK(node.op != nullptr, "node ", n, " has no operator");
    TATARA_CHECK(node.args.size() == node.op->schema.args.size(), node.op->name, ": ", node.args.size(),
                 " arguments for ", node.op->schema.args.size());
    for (size_t i = 0; i < node.args.size(); ++i) {
      TATARA_CHECK(fits(node.op->schema.args[i], node.args[i]), node.op->name, ": argument ", i, " is of a wrong kind");
    }
    for_each_operand(node, [&](ValueId v) { check_use(v, node.op->name); });
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId v = node.outputs[i];
      TATARA_CHECK(v >= 0 && v < count && !defined[static_cast<size_t>(v)], node.op->name, ": %", v,
                   " is defined twice");
      TATARA_CHECK(
          graph.value(v).producer == static_cast<NodeId>(n) && graph.value(v).output_index == static_cast<int>(i),
          node.op->name, ": %", v, " names another producer");
      defined[static_cast<size_t>(v)] = true;
    }
  }
  const auto num_inputs = static_cast<int>(graph.inputs().size());
  const auto num_outputs = static_cast<int>(graph.outputs().size());
  for (const GraphOutput& output : graph.outputs()) {
    check_use(output.value, "return");
    if (output.alias.kind == OutputAlias::Kind::kFresh) continue;
    const int limit = output.alias.kind == OutputAlias::Kind::kInput ? num_inputs : num_outputs;
    TATARA_CHECK(output.alias.index >= 0 && output.alias.index < limit, "an output is an alias of nothing");
  }
  for (const InputWrite& write : graph.input_writes()) {
    check_use(write.value, "write");
    TATARA_CHECK(write.input_index >= 0 && write.input_index < num_inputs, "a write to no input");
    const TensorType& input = graph.type(graph.inputs()[static_cast<size_t>(write.input_index)]);
    TATARA_CHECK(input.dtype == graph.type(write.value).dtype && input.sizes == graph.type(write.value).sizes,
                 "a write of another shape or element type");
  }
}

}  // namespace tatara
