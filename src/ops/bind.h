// Binding a Python call to an operator's schema, without Python: the tracer adapts its objects to ArgSource.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ops/op_def.h"

namespace tatara {

/// What a Python object is to a schema. bool is not kInt. Python's types float, int, bool, complex count as kDType.
enum class SourceKind : uint8_t {
  kNone, kTensor, kBool, kInt, kFloat, kComplex, kString, kDType, kDevice, kLayout, kMemoryFormat, kGenerator,
  kSequence,  // list, tuple, torch.Size
  kOther,
};

/// The objects of one call. A handle names an object (a PyObject* in the tracer); it stays valid during the binding.
class ArgSource {
 public:
  using Handle = const void*;
  virtual ~ArgSource() = default;
  virtual size_t num_positional() const = 0;
  virtual Handle positional(size_t i) const = 0;
  virtual size_t num_keywords() const = 0;
  virtual std::string_view keyword(size_t i) const = 0;
  virtual Handle keyword_value(size_t i) const = 0;

  virtual SourceKind kind(Handle object) const = 0;
  virtual size_t length(Handle sequence) const = 0;
  virtual Handle item(Handle sequence, size_t i) const = 0;
  /// The number that stands for the tensor in TensorArg and TensorList (a ValueId or a Functionalizer::TensorRef).
  virtual int32_t tensor(Handle object) const = 0;
  /// kBool, kInt (symbolic ones as Expr), kFloat, kComplex.
  virtual Scalar scalar(Handle object) const = 0;
  /// kString, kLayout ("strided"), kMemoryFormat ("contiguous_format", "channels_last", ...).
  virtual std::string text(Handle object) const = 0;
  virtual DType dtype(Handle object) const = 0;
  virtual Device device(Handle object) const = 0;
};

struct BoundCall {
  const OpDef* op = nullptr;
  OpRegistry::PythonName::Form form = OpRegistry::PythonName::Form::kFunction;
  std::vector<Arg> args;                 // one per schema argument
  std::vector<ArgSource::Handle> out;    // objects given as out=, one per output; empty: none
  bool requires_grad = false;            // factories: requires_grad=True
};

/// The default of an argument as a bound value (integer lists get their constants).
Arg default_arg(ExprContext& ctx, const ArgSpec& spec);

/// Binds one candidate; nullopt when the call does not fit its schema.
std::optional<BoundCall> bind_candidate(ExprContext& ctx, const OpRegistry::PythonName& candidate,
                                        const ArgSource& source);
/// The first candidate that fits. Unsupported with the name when none does (eager then raises or does it itself).
BoundCall bind_call(ExprContext& ctx, std::string_view dotted_name, const std::vector<OpRegistry::PythonName>& candidates,
                    const ArgSource& source);

}  // namespace tatara
