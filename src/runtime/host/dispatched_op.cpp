#include "runtime/host/dispatched_op.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/host/torch_handles.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara {
namespace {

using torch_abi::Api;
using torch_abi::StableIValue;
using torch_abi::TensorHandle;

/// What the boxed calling convention needs to know of one argument.
struct BoxedArg {
  bool optional = false;
  bool list = false;
  bool list_of_optional = false;
  std::string base;  // "Tensor", "int", "float", "bool", "str", "ScalarType", "Device", "Scalar", ...
};

struct BoxedSchema {
  std::vector<BoxedArg> args;
  int num_returns = 0;
  bool returns_list = false;
  bool dispatchable = true;  // false: an argument that the shims cannot carry
};

std::string trimmed(std::string text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::vector<std::string> split_top_level(const std::string& text) {
  std::vector<std::string> parts;
  int depth = 0;
  std::string part;
  for (const char c : text) {
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (c == ',' && depth == 0) {
      parts.push_back(trimmed(part));
      part.clear();
    } else {
      part += c;
    }
  }
  if (!trimmed(part).empty()) parts.push_back(trimmed(part));
  return parts;
}

std::string without_alias_marks(std::string text) {
  for (size_t open = text.find('('); open != std::string::npos; open = text.find('(')) {
    const size_t close = text.find(')', open);
    if (close == std::string::npos) break;
    text.erase(open, close - open + 1);
  }
  return text;
}

BoxedArg parse_boxed_arg(const std::string& text) {
  BoxedArg arg;
  std::string type = without_alias_marks(text.substr(0, text.find_last_of(' ')));
  const size_t equals = text.find('=');
  if (equals != std::string::npos) {
    const std::string head = trimmed(text.substr(0, equals));
    type = without_alias_marks(head.substr(0, head.find_last_of(' ')));
  }
  type = trimmed(type);
  if (!type.empty() && type.back() == '?') {
    arg.optional = true;
    type.pop_back();
  }
  const size_t bracket = type.find('[');
  if (bracket != std::string::npos) {
    arg.list = true;
    type = type.substr(0, bracket);
    if (!type.empty() && type.back() == '?') {
      arg.list_of_optional = true;
      type.pop_back();
    }
  }
  arg.base = type == "SymInt" ? "int" : type;
  return arg;
}

BoxedSchema parse_boxed_schema(const std::string& text) {
  BoxedSchema schema;
  const size_t open = text.find('(');
  const size_t arrow = text.find(" -> ");
  if (open == std::string::npos || arrow == std::string::npos) throw InternalError("malformed host schema: " + text);
  const size_t close = text.rfind(')', arrow);
  for (const std::string& part : split_top_level(text.substr(open + 1, close - open - 1))) {
    if (part == "*" || part.empty()) continue;
    schema.args.push_back(parse_boxed_arg(part));
  }
  const std::string returns = trimmed(text.substr(arrow + 4));
  if (returns != "()") {
    if (returns.front() == '(') {
      schema.num_returns = static_cast<int>(split_top_level(returns.substr(1, returns.size() - 2)).size());
    } else {
      schema.num_returns = 1;
      schema.returns_list = without_alias_marks(returns).find('[') != std::string::npos;
    }
  }
  for (const BoxedArg& arg : schema.args) {
    const bool carried = arg.base == "Tensor" || arg.base == "int" || arg.base == "float" || arg.base == "bool" ||
                         arg.base == "str" || arg.base == "ScalarType" || arg.base == "Device" ||
                         arg.base == "Layout" || arg.base == "MemoryFormat" || arg.base == "Generator";
    if (!carried) schema.dispatchable = false;
  }
  return schema;
}

template <typename T>
StableIValue box(T value) {
  static_assert(sizeof(T) <= sizeof(StableIValue));
  StableIValue boxed = 0;
  std::memcpy(&boxed, &value, sizeof(T));
  return boxed;
}

class DispatchedOp final : public HostOp {
 public:
  DispatchedOp(const Api& api, std::string op, std::string overload, BoxedSchema schema)
      : api_(api), op_(std::move(op)), overload_(std::move(overload)), schema_(std::move(schema)) {}

  std::vector<HostTensor> call(std::span<const HostValue> args) const override {
    if (!schema_.dispatchable || !fits(args)) return call_python(args);
    if (args.size() != schema_.args.size()) throw InternalError("wrong number of arguments for " + op_);
    std::vector<StableIValue> stack;
    stack.reserve(args.size() + 8);
    for (size_t i = 0; i < args.size(); ++i) stack.push_back(box_argument(schema_.args[i], args[i]));
    stack.resize(std::max(stack.size(), static_cast<size_t>(schema_.num_returns)));
    check(api_, api_.torch_call_dispatcher(op_.c_str(), overload_.c_str(), stack.data(), api_.aoti_torch_abi_version()),
          op_);
    return unbox_results(stack);
  }

  std::string objection(std::span<const HostKind> args, size_t results) const override {
    if (args.size() != schema_.args.size()) return str_cat("it has ", schema_.args.size(), " arguments");
    for (size_t i = 0; i < args.size(); ++i) {
      if (!takes(schema_.args[i], args[i])) return str_cat("its argument ", i, " is of another kind");
    }
    const bool enough = schema_.returns_list || results <= static_cast<size_t>(schema_.num_returns);
    return enough ? std::string() : str_cat("it returns ", schema_.num_returns, " tensors");
  }

 private:
  static bool takes(const BoxedArg& arg, const HostKind& value) {
    using Kind = HostValue::Kind;
    const auto is = [&](std::initializer_list<std::string_view> names) {
      return std::find(names.begin(), names.end(), arg.base) != names.end();
    };
    switch (value.kind) {
      case Kind::kNone: return arg.optional || is({"Generator", "Layout", "MemoryFormat"});
      case Kind::kTensor: return is({"Tensor"}) && !arg.list;
      case Kind::kTensorList: return is({"Tensor"}) && arg.list && (arg.list_of_optional || !value.has_none);
      case Kind::kInt: return is({"int", "Scalar"}) || (is({"float"}) && !arg.list);
      case Kind::kDouble: return is({"float", "Scalar"}) && !arg.list;
      case Kind::kBool: return is({"bool", "int", "Scalar"});
      case Kind::kComplex: return is({"Scalar"}) && !arg.list;
      case Kind::kString: return is({"str", "Layout", "MemoryFormat"}) && !arg.list;
      case Kind::kIntList: return is({"int", "float", "Scalar"}) && arg.list;
      case Kind::kDoubleList: return is({"float", "Scalar"}) && arg.list;
      case Kind::kBoolList: return is({"bool"}) && arg.list;
      case Kind::kDType: return is({"ScalarType"}) && !arg.list;
      case Kind::kDevice: return is({"Device"}) && !arg.list;
    }
    return false;
  }

  /// Generators and layouts pass as None only.
  bool fits(std::span<const HostValue> args) const {
    for (size_t i = 0; i < args.size() && i < schema_.args.size(); ++i) {
      const std::string& base = schema_.args[i].base;
      if ((base == "Generator" || base == "Layout" || base == "MemoryFormat") &&
          args[i].kind != HostValue::Kind::kNone) {
        return false;
      }
    }
    return true;
  }

  std::vector<HostTensor> call_python(std::span<const HostValue> args) const {
    if (!torch_python_hooks().call) throw Unsupported("host operator " + op_ + " needs Python, which is not there");
    return torch_python_hooks().call(op_, overload_, args);
  }

  StableIValue box_scalar(const BoxedArg& arg, const HostValue& value) const {
    switch (value.kind) {
      case HostValue::Kind::kTensor: return box(new_reference(api_, value.tensor));
      case HostValue::Kind::kInt:
        return arg.base == "float" ? box(static_cast<double>(value.integer)) : box(value.integer);
      case HostValue::Kind::kBool: return arg.base == "int" ? box(value.integer) : box(value.integer != 0);
      case HostValue::Kind::kDouble: return box(value.number);
      case HostValue::Kind::kString: {
        torch_abi::StringHandle handle = nullptr;
        check(api_, api_.torch_new_string_handle(value.text.data(), value.text.size(), &handle), "making a string");
        return box(handle);
      }
      case HostValue::Kind::kDType: return box(torch_abi::scalar_type(value.dtype));
      case HostValue::Kind::kDevice: {
        const int32_t type = value.device.kind == DeviceKind::kCuda ? api_.aoti_torch_device_type_cuda()
                                                                    : api_.aoti_torch_device_type_cpu();
        return static_cast<uint64_t>(static_cast<uint32_t>(value.device.index)) |
               (static_cast<uint64_t>(static_cast<uint32_t>(type)) << 32);
      }
      case HostValue::Kind::kTensorList:
      case HostValue::Kind::kIntList:
      case HostValue::Kind::kDoubleList:
      case HostValue::Kind::kBoolList: return box_list(arg, value);
      case HostValue::Kind::kNone:
      case HostValue::Kind::kComplex: break;
    }
    throw InternalError("argument of host operator " + op_ + " cannot be passed");
  }

  StableIValue box_list(const BoxedArg& arg, const HostValue& value) const {
    torch_abi::ListHandle list = nullptr;
    const size_t size = value.kind == HostValue::Kind::kTensorList   ? value.tensors.size()
                        : value.kind == HostValue::Kind::kDoubleList ? value.numbers.size()
                                                                     : value.integers.size();
    check(api_, api_.torch_new_list_reserve_size(size, &list), "making a list");
    for (size_t i = 0; i < size; ++i) {
      StableIValue element = 0;
      if (value.kind == HostValue::Kind::kTensorList) {
        element = value.tensors[i] == nullptr ? 0 : box(new_reference(api_, value.tensors[i]));
        if (arg.list_of_optional && element != 0) element = box(heap(element));
      } else if (value.kind == HostValue::Kind::kDoubleList) {
        element = box(value.numbers[i]);
      } else if (value.kind == HostValue::Kind::kBoolList) {
        element = box(value.integers[i] != 0);
      } else {
        element = arg.base == "float" ? box(static_cast<double>(value.integers[i])) : box(value.integers[i]);
      }
      check(api_, api_.torch_list_push_back(list, element), "filling a list");
    }
    return box(list);
  }

  /// Optionals travel as a pointer to a heap cell that the dispatcher frees.
  StableIValue* heap(StableIValue value) const {
    StableIValue* cell = nullptr;
    if (api_.torch_new_stable_ivalue != nullptr) {
      check(api_, api_.torch_new_stable_ivalue(&cell), "boxing an optional");
      *cell = value;
    } else {
      cell = new StableIValue(value);
    }
    return cell;
  }

  StableIValue box_argument(const BoxedArg& arg, const HostValue& value) const {
    if (value.kind == HostValue::Kind::kNone) return 0;
    if (arg.list && (value.kind == HostValue::Kind::kInt || value.kind == HostValue::Kind::kBool)) {
      HostValue list;
      list.kind = HostValue::Kind::kIntList;
      list.integers = {value.integer};
      return box_argument(arg, list);
    }
    const StableIValue boxed = box_scalar(arg, value);
    return arg.optional ? box(heap(boxed)) : boxed;
  }

  std::vector<HostTensor> unbox_results(const std::vector<StableIValue>& stack) const {
    std::vector<HostTensor> results;
    if (schema_.returns_list) {
      torch_abi::ListHandle list = nullptr;
      std::memcpy(&list, &stack[0], sizeof(list));
      size_t size = 0;
      check(api_, api_.torch_list_size(list, &size), "reading a list");
      for (size_t i = 0; i < size; ++i) {
        StableIValue element = 0;
        check(api_, api_.torch_list_get_item(list, i, &element), "reading a list");
        results.push_back(unbox_tensor(element));
      }
      api_.torch_delete_list(list);
      return results;
    }
    for (int i = 0; i < schema_.num_returns; ++i) results.push_back(unbox_tensor(stack[static_cast<size_t>(i)]));
    return results;
  }

  HostTensor unbox_tensor(StableIValue boxed) const {
    TensorHandle handle = nullptr;
    std::memcpy(&handle, &boxed, sizeof(TensorHandle));
    return adopt(api_, handle);
  }

  const Api& api_;
  std::string op_;
  std::string overload_;
  BoxedSchema schema_;
};

}  // namespace

std::unique_ptr<HostOp> make_dispatched_op(const Api& api, const std::string& op, const std::string& overload,
                                           const std::string& schema) {
  return std::make_unique<DispatchedOp>(api, op, overload, parse_boxed_schema(schema));
}

}  // namespace tatara
