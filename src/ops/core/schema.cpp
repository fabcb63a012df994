// The host's schema language (native_functions.yaml), as far as operators need it.
#include <cctype>
#include <charconv>

#include "ops/core/op_def.h"
#include "support/error.h"

namespace tatara {
namespace {

class SchemaParser {
 public:
  explicit SchemaParser(std::string_view text) : text_(text) {}

  OpSchema parse() {
    OpSchema schema;
    expect("(");
    bool keyword_only = false;
    while (!take(")")) {
      if (take("*")) {
        keyword_only = true;
      } else {
        schema.args.push_back(argument());
        schema.args.back().keyword_only = keyword_only;
      }
      take(",");
    }
    expect("->");
    returns(schema);
    skip();
    if (at_ != text_.size()) fail("unexpected text");
    return schema;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw InvalidArgument(str_cat("schema: ", what, " at position ", at_, " of '", text_, "'"));
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view token) {
    skip();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail("missing punctuation");
  }
  std::string_view word() {
    skip();
    const size_t start = at_;
    const auto of_a_word = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    while (at_ < text_.size() && of_a_word(text_[at_])) ++at_;
    if (at_ == start) fail("expected a word");
    return text_.substr(start, at_ - start);
  }

  void alias_mark(ArgSpec& spec) {
    if (!take("(")) return;
    skip();
    spec.alias = text_[at_] - 'a';
    ++at_;
    spec.written = take("!");
    take("-> *");
    expect(")");
  }

  static ArgType pick(bool optional, ArgType plain, ArgType other) { return optional ? other : plain; }

  ArgType type_of(std::string_view base, bool list, bool element_optional, bool optional) {
    if (base == "Tensor" && list) return element_optional ? ArgType::kOptionalTensorList : ArgType::kTensorList;
    if (base == "Tensor") return pick(optional, ArgType::kTensor, ArgType::kOptionalTensor);
    if (base == "Operand") return ArgType::kTensorOrScalar;
    if ((base == "int" || base == "SymInt") && list)
      return pick(optional, ArgType::kIntList, ArgType::kOptionalIntList);
    if (base == "int" || base == "SymInt") return pick(optional, ArgType::kInt, ArgType::kOptionalInt);
    if (base == "float" && list) return ArgType::kFloatList;
    if (base == "float") return pick(optional, ArgType::kFloat, ArgType::kOptionalFloat);
    if (base == "bool" && list) return ArgType::kBoolList;
    if (base == "bool") return pick(optional, ArgType::kBool, ArgType::kOptionalBool);
    if (base == "Scalar") return pick(optional, ArgType::kScalar, ArgType::kOptionalScalar);
    if (base == "ScalarType") return ArgType::kDType;
    if (base == "Device") return ArgType::kDevice;
    if (base == "str") return pick(optional, ArgType::kString, ArgType::kOptionalString);
    if (base == "MemoryFormat") return ArgType::kMemoryFormat;
    if (base == "Layout") return ArgType::kLayout;
    if (base == "Generator") return ArgType::kGenerator;
    fail("unknown type");
  }

  ArgSpec argument() {
    ArgSpec spec;
    const std::string_view base = word();
    bool element_optional = false;
    bool list = false;
    alias_mark(spec);
    if (take("?")) element_optional = true;
    if (take("[")) {
      list = true;
      skip();
      if (std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) spec.list_size = std::stoi(std::string(word()));
      expect("]");
    }
    bool optional = element_optional && !list;
    if (take("?")) optional = true;
    spec.type = type_of(base, list, element_optional, optional);
    spec.name = word();
    if (take("=")) {
      spec.has_default = true;
      spec.default_value = default_value(spec);
    }
    return spec;
  }

  Arg number(ArgType type) {
    skip();
    const size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '.' ||
                                  text_[at_] == '-' || text_[at_] == '+')) {
      ++at_;
    }
    const std::string token(text_.substr(start, at_ - start));
    if (token.empty()) fail("expected a default");
    if (token.find_first_of(".e") != std::string::npos || type == ArgType::kFloat || type == ArgType::kOptionalFloat) {
      return Scalar(std::stod(token));
    }
    int64_t value = 0;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
    if (error != std::errc() || end != token.data() + token.size()) fail("malformed default");
    return Scalar(value);
  }

  Arg list_default(ArgType type) {
    std::vector<double> numbers;
    std::vector<bool> flags;
    while (!take("]")) {
      if (take("True") || take("true")) {
        flags.push_back(true);
      } else if (take("False") || take("false")) {
        flags.push_back(false);
      } else {
        const Arg item = number(type);
        const auto& scalar = std::get<Scalar>(item);
        numbers.push_back(std::holds_alternative<int64_t>(scalar) ? static_cast<double>(std::get<int64_t>(scalar))
                                                                  : std::get<double>(scalar));
      }
      take(",");
    }
    if (type == ArgType::kBoolList) return flags;
    if (type == ArgType::kIntList || type == ArgType::kOptionalIntList) {
      // Whole numbers without a context yet: bind() turns them into constants.
      return numbers;
    }
    return numbers;
  }

  Arg default_value(const ArgSpec& spec) {
    if (take("None")) return NoneArg{};
    if (take("True")) return Scalar(true);
    if (take("False")) return Scalar(false);
    if (take("[")) return list_default(spec.type);
    if (take("\"")) return quoted('"');
    if (take("'")) return quoted('\'');
    skip();
    if (spec.type == ArgType::kString || spec.type == ArgType::kOptionalString || spec.type == ArgType::kMemoryFormat ||
        spec.type == ArgType::kLayout) {
      return std::string(word());
    }
    if (spec.type == ArgType::kDType) {
      const std::string_view name = word();
      const auto dtype = parse_dtype(name == "long" ? "int64" : name);
      if (!dtype) fail("unknown dtype");
      return *dtype;
    }
    return number(spec.type);
  }

  Arg quoted(char mark) {
    const size_t start = at_;
    while (at_ < text_.size() && text_[at_] != mark) ++at_;
    std::string value(text_.substr(start, at_ - start));
    if (at_ == text_.size()) fail("unterminated text");
    ++at_;
    return value;
  }

  void one_return(OpSchema& schema) {
    ArgSpec spec;
    word();
    alias_mark(spec);
    if (take("[")) {
      expect("]");
      schema.num_outputs = -1;
    } else if (schema.num_outputs >= 0) {
      ++schema.num_outputs;
    }
    schema.output_alias.push_back(spec.alias);
    skip();
    if (at_ < text_.size() && (std::isalpha(static_cast<unsigned char>(text_[at_])) != 0)) word();  // the result's name
  }

  void returns(OpSchema& schema) {
    schema.num_outputs = 0;
    if (!take("(")) {
      one_return(schema);
      return;
    }
    while (!take(")")) {
      one_return(schema);
      take(",");
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

OpSchema parse_schema(std::string_view text) { return SchemaParser(text).parse(); }

}  // namespace tatara
