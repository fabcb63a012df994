// Binding a call's arguments to an operator's schema, without Python: the tracer adapts PyObject* to ArgSource.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "ops/core/op_def.h"

namespace tatara {

/// What one argument of a call is. Lists are lists or tuples.
enum class ArgKind : uint8_t {
  kNone,
  kTensor,
  kBool,
  kInt,  // symbolic ones too
  kFloat,
  kComplex,
  kVarying,  // a float that is read when the graph runs: a tensor without dimensions
  kString,
  kDType,
  kDevice,
  kMemoryFormat,
  kLayout,
  kGenerator,
  kEmptyList,
  kTensorList,  // of tensors and None
  kIntList,
  kFloatList,  // of numbers, at least one a float
  kBoolList,
  kOther,
};

/// The arguments of one call, numbered: positional ones first, then keywords in order.
class ArgSource {
 public:
  virtual ~ArgSource() = default;
  virtual size_t num_positional() const = 0;
  virtual size_t num_keywords() const = 0;
  /// Whether a function of Python's is called, not the dispatcher's operator itself: they differ in defaults.
  virtual bool python_function() const = 0;
  /// The name of a positional argument, where an overload of the dispatcher says it: no other form may take the call then.
  virtual std::string_view positional_name(size_t item) const = 0;
  /// Names of the overload's arguments whose defaults say something (a probability): a form without them is another's.
  virtual const std::vector<std::string>& needed_names() const = 0;
  virtual std::string_view keyword(size_t k) const = 0;
  virtual ArgKind kind(size_t item) const = 0;
  virtual ValueId tensor(size_t item) = 0;                // kTensor, kVarying
  virtual std::vector<ValueId> tensors(size_t item) = 0;  // kTensorList; kNoValue for None
  virtual Scalar scalar(size_t item) = 0;                 // kBool, kInt, kFloat, kComplex
  virtual std::vector<Expr> ints(size_t item) = 0;        // kIntList, kBoolList, kInt
  virtual std::vector<double> floats(size_t item) = 0;
  virtual std::vector<bool> bools(size_t item) = 0;
  virtual std::string string(size_t item) = 0;  // kString, kMemoryFormat, kLayout
  virtual DType dtype(size_t item) = 0;
  virtual Device device(size_t item) = 0;
};

/// Bound arguments, one per schema argument, or nothing when the call does not fit the schema.
std::optional<std::vector<Arg>> bind_args(ExprContext& ctx, const OpSchema& schema, ArgSource& source);

/// The value of an argument that was left out. InternalError when the schema has no default for it.
Arg default_argument(ExprContext& ctx, const ArgSpec& spec);

}  // namespace tatara
