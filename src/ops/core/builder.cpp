#include "ops/core/builder.h"

#include <algorithm>

#include "ops/core/bind.h"
#include "ops/core/meta.h"
#include "support/error.h"

namespace tatara {

std::vector<ValueId> GraphBuilder::call(const OpDef& op, std::vector<Arg> args) {
  MetaContext meta(graph_, op, args, default_dtype_);
  if (op.choose) {
    Choice choice = op.choose(meta);
    if (choice.op == "alias_self") return {std::get<TensorArg>(args[0]).value};
    return call(OpRegistry::global().get(choice.op), std::move(choice.args));
  }
  if (!op.meta && op.decompose) {
    // Composites without inference of their own take their types from their parts.
    std::vector<ValueId> parts = op.decompose(*this, args);
    if (!parts.empty()) return parts;
  }
  if (!op.meta) throw Unsupported("operator " + op.name + " has no type inference");
  std::vector<TensorType> types = op.meta(meta);
  const NodeId id = graph_.add_node(&op, std::move(args), std::move(types), location_);
  graph_.node(id).no_grad = no_grad_;
  graph_.node(id).closed = closed_;
  graph_.node(id).region = region_;
  return graph_.node(id).outputs;
}

std::vector<ValueId> GraphBuilder::op_multi(std::string_view name, std::vector<Arg> args) {
  const OpDef& def = OpRegistry::global().get(name);
  if (args.size() > def.schema.args.size()) throw InternalError(str_cat("too many arguments for ", name));
  for (size_t i = args.size(); i < def.schema.args.size(); ++i) {
    if (!def.schema.args[i].has_default) throw InternalError(str_cat("missing argument ", i, " of ", name));
    args.push_back(default_argument(ctx(), def.schema.args[i]));
  }
  return call(def, std::move(args));
}

ValueId GraphBuilder::op(std::string_view name, std::vector<Arg> args) {
  const std::vector<ValueId> results = op_multi(name, std::move(args));
  if (results.size() != 1) throw InternalError(str_cat(name, " does not have one result"));
  return results.front();
}

std::vector<ValueId> GraphBuilder::host_call(const OpDef& op, std::vector<Arg> args, std::vector<TensorType> types) {
  const NodeId id = graph_.add_node(&op, std::move(args), std::move(types), location_);
  graph_.node(id).no_grad = no_grad_;
  graph_.node(id).closed = closed_;
  graph_.node(id).region = region_;
  return graph_.node(id).outputs;
}

ValueId GraphBuilder::constant(double value, DType dtype, Device device) {
  Scalar scalar = value;
  if (is_integral(dtype)) scalar = static_cast<int64_t>(value);
  if (dtype == DType::kBool) scalar = value != 0;
  return op("full", {SymInts{}, scalar, dtype, NoneArg{}, device});
}

ValueId GraphBuilder::cast(ValueId x, DType dtype) {
  return type(x).dtype == dtype && !type(x).is_wrapped_number ? x : op("cast", {TensorArg{x}, dtype});
}

ValueId GraphBuilder::where(ValueId c, ValueId a, ValueId b) {
  return op("where", {TensorArg{c}, TensorArg{a}, TensorArg{b}});
}

ValueId GraphBuilder::reduce(std::string_view name, ValueId x, std::vector<int64_t> dims, bool keepdim) {
  SymInts list;
  for (const int64_t d : dims) list.values.push_back(ctx().constant(d));
  return op(name, {TensorArg{x}, list, Scalar(keepdim)});
}

ValueId GraphBuilder::expand(ValueId x, const std::vector<Expr>& sizes) {
  return type(x).sizes == sizes ? x : op("expand", {TensorArg{x}, SymInts{sizes}});
}

ValueId GraphBuilder::reshape(ValueId x, const std::vector<Expr>& sizes) {
  return type(x).sizes == sizes ? x : op("reshape", {TensorArg{x}, SymInts{sizes}});
}

ValueId GraphBuilder::permute(ValueId x, const std::vector<int64_t>& dims) {
  SymInts list;
  bool identity = true;
  for (size_t i = 0; i < dims.size(); ++i) {
    list.values.push_back(ctx().constant(dims[i]));
    identity = identity && dims[i] == static_cast<int64_t>(i);
  }
  return identity ? x : op("permute", {TensorArg{x}, list});
}

ValueId GraphBuilder::unsqueeze(ValueId x, int64_t dim) { return op("unsqueeze", {TensorArg{x}, Scalar(dim)}); }
ValueId GraphBuilder::squeeze(ValueId x, int64_t dim) { return op("squeeze.dim", {TensorArg{x}, Scalar(dim)}); }

ValueId GraphBuilder::slice(ValueId x, int64_t dim, Expr start, Expr end, Expr step) {
  return op("slice", {TensorArg{x}, Scalar(dim), Scalar(start), Scalar(end), Scalar(step)});
}

}  // namespace tatara
