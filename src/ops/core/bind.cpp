#include "ops/core/bind.h"

#include <algorithm>
#include <array>

#include "support/error.h"

namespace tatara {
namespace {

bool is_int_list(ArgType type) { return type == ArgType::kIntList || type == ArgType::kOptionalIntList; }

bool is_optional(ArgType type) {
  switch (type) {
    case ArgType::kOptionalTensor:
    case ArgType::kOptionalScalar:
    case ArgType::kOptionalInt:
    case ArgType::kOptionalFloat:
    case ArgType::kOptionalBool:
    case ArgType::kOptionalIntList:
    case ArgType::kOptionalString:
    case ArgType::kDType:
    case ArgType::kDevice:
    case ArgType::kMemoryFormat:
    case ArgType::kLayout:
    case ArgType::kGenerator: return true;
    case ArgType::kTensor:
    case ArgType::kTensorList:
    case ArgType::kOptionalTensorList:
    case ArgType::kScalar:
    case ArgType::kTensorOrScalar:
    case ArgType::kInt:
    case ArgType::kFloat:
    case ArgType::kBool:
    case ArgType::kIntList:
    case ArgType::kFloatList:
    case ArgType::kBoolList:
    case ArgType::kString: return false;
  }
  return false;
}

bool is_plain_number(ArgKind kind) {
  return kind == ArgKind::kBool || kind == ArgKind::kInt || kind == ArgKind::kFloat || kind == ArgKind::kComplex;
}

/// Whether an argument of this kind may stand where the schema wants `spec`.
bool accepts(const ArgSpec& spec, ArgKind kind) {
  if (kind == ArgKind::kNone)
    return is_optional(spec.type) || (spec.has_default && std::holds_alternative<NoneArg>(spec.default_value));
  if (kind == ArgKind::kVarying) return spec.type == ArgType::kTensorOrScalar || spec.takes_value;
  switch (spec.type) {
    case ArgType::kTensor:
    case ArgType::kOptionalTensor: return kind == ArgKind::kTensor;
    case ArgType::kTensorList:
    case ArgType::kOptionalTensorList: return kind == ArgKind::kTensorList || kind == ArgKind::kEmptyList;
    case ArgType::kScalar:
    case ArgType::kOptionalScalar: return is_plain_number(kind);
    case ArgType::kTensorOrScalar: return kind == ArgKind::kTensor || is_plain_number(kind);
    case ArgType::kInt:
    case ArgType::kOptionalInt: return kind == ArgKind::kInt || kind == ArgKind::kBool;
    case ArgType::kFloat:
    case ArgType::kOptionalFloat: return kind == ArgKind::kFloat || kind == ArgKind::kInt || kind == ArgKind::kBool;
    case ArgType::kBool:
    case ArgType::kOptionalBool: return kind == ArgKind::kBool || kind == ArgKind::kInt;
    case ArgType::kIntList:
    case ArgType::kOptionalIntList:
      return kind == ArgKind::kIntList || kind == ArgKind::kEmptyList || (kind == ArgKind::kInt && spec.list_size > 0);
    case ArgType::kFloatList:
      return kind == ArgKind::kFloatList || kind == ArgKind::kIntList || kind == ArgKind::kEmptyList;
    case ArgType::kBoolList: return kind == ArgKind::kBoolList || kind == ArgKind::kEmptyList;
    case ArgType::kDType: return kind == ArgKind::kDType;
    case ArgType::kDevice: return kind == ArgKind::kDevice || kind == ArgKind::kString;
    case ArgType::kString:
    case ArgType::kOptionalString: return kind == ArgKind::kString;
    case ArgType::kMemoryFormat: return kind == ArgKind::kMemoryFormat;
    case ArgType::kLayout: return kind == ArgKind::kLayout;
    case ArgType::kGenerator: return kind == ArgKind::kGenerator;
  }
  return false;
}

Arg convert(ExprContext& ctx, const ArgSpec& spec, ArgKind kind, ArgSource& source, size_t item) {
  if (kind == ArgKind::kNone) return NoneArg{};
  if (kind == ArgKind::kVarying) return TensorArg{source.tensor(item)};
  switch (spec.type) {
    case ArgType::kTensor:
    case ArgType::kOptionalTensor: return TensorArg{source.tensor(item)};
    case ArgType::kTensorList:
    case ArgType::kOptionalTensorList:
      return TensorList{kind == ArgKind::kEmptyList ? std::vector<ValueId>() : source.tensors(item)};
    case ArgType::kTensorOrScalar:
      if (kind == ArgKind::kTensor) return TensorArg{source.tensor(item)};
      return source.scalar(item);
    case ArgType::kScalar:
    case ArgType::kOptionalScalar:
    case ArgType::kInt:
    case ArgType::kOptionalInt: return source.scalar(item);
    case ArgType::kFloat:
    case ArgType::kOptionalFloat: {
      const Scalar value = source.scalar(item);
      if (const auto* n = std::get_if<int64_t>(&value)) return Scalar(static_cast<double>(*n));
      if (const auto* b = std::get_if<bool>(&value)) return Scalar(*b ? 1.0 : 0.0);
      return value;
    }
    case ArgType::kBool:
    case ArgType::kOptionalBool: {
      const Scalar value = source.scalar(item);
      if (const auto* n = std::get_if<int64_t>(&value)) return Scalar(*n != 0);
      return value;
    }
    case ArgType::kIntList:
    case ArgType::kOptionalIntList: {
      if (kind == ArgKind::kEmptyList) return SymInts{};
      std::vector<Expr> values = source.ints(item);
      if (kind == ArgKind::kInt) values.resize(static_cast<size_t>(std::max(spec.list_size, 1)), values.front());
      return SymInts{std::move(values)};
    }
    case ArgType::kFloatList: return kind == ArgKind::kEmptyList ? std::vector<double>() : source.floats(item);
    case ArgType::kBoolList: return kind == ArgKind::kEmptyList ? std::vector<bool>() : source.bools(item);
    case ArgType::kDType: return source.dtype(item);
    case ArgType::kDevice: return source.device(item);
    case ArgType::kString:
    case ArgType::kOptionalString:
    case ArgType::kMemoryFormat:
    case ArgType::kLayout: return source.string(item);
    case ArgType::kGenerator: throw Unsupported("a generator as argument runs in eager");
  }
  (void)ctx;
  throw InternalError("unknown argument type");
}

/// torch accepts a few other spellings of parameter names.
bool names_match(std::string_view schema_name, std::string_view keyword) {
  if (schema_name == keyword) return true;
  constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kOther = {{
      {"self", "input"},
      {"self", "x"},
      {"self", "x1"},
      {"other", "x2"},
      {"other", "exponent"},
      {"other", "values"},
      {"dim", "axis"},
      {"keepdim", "keepdims"},
      {"size", "shape"},
      {"unbiased", "correction_flag"},
  }};
  return std::find(kOther.begin(), kOther.end(), std::pair(schema_name, keyword)) != kOther.end();
}

constexpr size_t kUnbound = static_cast<size_t>(-1);

}  // namespace

Arg default_argument(ExprContext& ctx, const ArgSpec& spec) {
  if (!spec.has_default) throw InternalError("argument " + spec.name + " has no default");
  if (is_int_list(spec.type)) {
    SymInts list;
    if (const auto* numbers = std::get_if<std::vector<double>>(&spec.default_value)) {
      for (const double n : *numbers) list.values.push_back(ctx.constant(static_cast<int64_t>(n)));
      return list;
    }
    if (const auto* scalar = std::get_if<Scalar>(&spec.default_value)) {
      if (const auto* n = std::get_if<int64_t>(scalar)) {
        list.values.assign(static_cast<size_t>(std::max(spec.list_size, 1)), ctx.constant(*n));
        return list;
      }
    }
  }
  return spec.default_value;
}

std::optional<std::vector<Arg>> bind_args(ExprContext& ctx, const OpSchema& schema, ArgSource& source) {
  const size_t positional = source.num_positional();
  std::vector<size_t> item_of(schema.args.size(), kUnbound);
  size_t next = 0;
  size_t gathered_at = kUnbound;  // x.view(2, 3): one list argument takes the remaining positional numbers
  for (size_t i = 0; i < schema.args.size() && next < positional; ++i) {
    if (schema.args[i].keyword_only) break;
    const bool list = is_int_list(schema.args[i].type);
    if (list && source.python_function() && source.kind(next) == ArgKind::kInt &&
        (positional - next > 1 || schema.args[i].list_size == 0)) {
      bool all_ints = true;
      for (size_t k = next; k < positional; ++k) all_ints = all_ints && source.kind(k) == ArgKind::kInt;
      // As eager's parser: only where the list is the one positional argument (besides self).
      const bool last = i + 1 == schema.args.size() || schema.args[i + 1].keyword_only;
      const bool first = last && (i == 0 || (i == 1 && schema.args[0].type == ArgType::kTensor));
      if (all_ints && first) {
        gathered_at = i;
        item_of[i] = next;
        next = positional;
        break;
      }
    }
    const std::string_view name = source.positional_name(next);
    if (!name.empty() && !names_match(schema.args[i].name, name)) return std::nullopt;
    item_of[i] = next++;
  }
  if (next < positional) return std::nullopt;
  for (const std::string& name : source.needed_names()) {
    const auto has = [&name](const ArgSpec& spec) { return names_match(spec.name, name); };
    if (std::none_of(schema.args.begin(), schema.args.end(), has)) return std::nullopt;
  }
  for (size_t k = 0; k < source.num_keywords(); ++k) {
    const auto found = std::find_if(schema.args.begin(), schema.args.end(),
                                    [&](const ArgSpec& spec) { return names_match(spec.name, source.keyword(k)); });
    if (found == schema.args.end()) return std::nullopt;
    const auto i = static_cast<size_t>(found - schema.args.begin());
    if (item_of[i] != kUnbound) return std::nullopt;
    item_of[i] = positional + k;
  }
  for (size_t i = 0; i < schema.args.size(); ++i) {
    if (item_of[i] == kUnbound) {
      if (!schema.args[i].has_default) return std::nullopt;
    } else if (i != gathered_at && !accepts(schema.args[i], source.kind(item_of[i]))) {
      return std::nullopt;
    }
  }
  std::vector<Arg> args;
  for (size_t i = 0; i < schema.args.size(); ++i) {
    // For functions of Python's None in place of a dtype means the default, and a default of at::Reduction::Mean is read as 0.
    const bool python = source.python_function();
    const bool left_out = item_of[i] == kUnbound || (python && schema.args[i].type == ArgType::kDType &&
                                                     source.kind(item_of[i]) == ArgKind::kNone);
    if (left_out && python && schema.args[i].name == "reduction") {
      args.push_back(Scalar(int64_t{0}));
    } else if (left_out && schema.args[i].has_default) {
      args.push_back(default_argument(ctx, schema.args[i]));
    } else if (i == gathered_at) {
      SymInts list;
      for (size_t k = item_of[i]; k < positional; ++k) list.values.push_back(source.ints(k).front());
      args.push_back(std::move(list));
    } else {
      args.push_back(convert(ctx, schema.args[i], source.kind(item_of[i]), source, item_of[i]));
    }
  }
  return args;
}

}  // namespace tatara
