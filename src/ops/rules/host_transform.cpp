#include "ops/rules/host_transform.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "ops/rules/derivative.h"
#include "support/error.h"
#include "support/fork.h"
#include "support/made_once.h"

namespace tatara {
namespace {

constexpr std::string_view kTransformed = "tatara_host:";

/// "aten::median" and "dim" for an operator of the registry.
std::pair<std::string, std::string> host_place(const OpDef& op) {
  const size_t dot = op.name.find('.');
  std::string name = op.host_name.empty() ? op.name.substr(0, dot) : op.host_name;
  std::string overload = op.host_overload;
  if (op.host_name.empty() && overload.empty() && dot != std::string::npos) overload = op.name.substr(dot + 1);
  if (overload == "out") overload.clear();
  if (name.find("::") == std::string::npos) name = "aten::" + name;
  return {name, overload};
}

ArgSpec argument(const char* name, ArgType type) {
  ArgSpec spec;
  spec.name = name;
  spec.type = type;
  return spec;
}

std::unique_ptr<OpDef> make(const OpDef& op, HostTransform transform) {
  auto def = std::make_unique<OpDef>();
  def->kind = OpKind::kHost;
  def->schema = op.schema;
  def->schema_text = op.schema_text;
  char letter = 'd';
  switch (transform) {
    case HostTransform::kDerivative:
      def->name = "vjp of " + op.name;
      def->schema.args.push_back(argument("cotangents", ArgType::kOptionalTensorList));
      def->schema.args.push_back(argument("needs", ArgType::kBoolList));
      def->schema.num_outputs = -1;
      def->vjp = host_derivative;
      break;
    case HostTransform::kForward:
      letter = 'j';
      def->name = "jvp of " + op.name;
      def->schema.args.push_back(argument("tangents", ArgType::kOptionalTensorList));
      def->schema.num_outputs = -1;
      def->vjp = host_derivative;
      break;
    case HostTransform::kRegistered:
      letter = 'r';
      def->name = "registered vjp of " + op.name;
      def->schema.args.push_back(argument("results", ArgType::kTensorList));
      def->schema.args.push_back(argument("cotangents", ArgType::kOptionalTensorList));
      def->schema.args.push_back(argument("needs", ArgType::kBoolList));
      def->schema.num_outputs = -1;
      def->vjp = host_derivative;
      break;
    case HostTransform::kBatch:
      letter = 'v';
      def->name = "vmap of " + op.name;
      def->schema.args.push_back(argument("batched", ArgType::kBoolList));
      // What is the user's runs again nowhere: its derivative is a rule, or missing.
      if (!is_library_operator(op)) def->vjp = host_derivative_of(op);
      break;
  }
  def->schema.output_alias.assign(def->schema.num_outputs < 0 ? 0 : static_cast<size_t>(def->schema.num_outputs), -1);
  if (op.host_name.starts_with(kTransformed)) {
    const size_t colon = op.host_name.find(':', kTransformed.size());
    def->host_name = op.host_name.substr(0, colon) + letter + op.host_name.substr(colon);
    def->host_overload = op.host_overload;
  } else {
    const auto [name, overload] = host_place(op);
    def->host_name = str_cat(kTransformed, std::string(1, letter), ":", op.schema.args.size(), ":", name);
    def->host_overload = overload;
  }
  def->not_differentiable = op.not_differentiable && transform != HostTransform::kRegistered;
  def->nondeterministic = op.nondeterministic;
  return def;
}

}  // namespace

bool is_host_transform(const OpDef& op) { return op.host_name.starts_with(kTransformed); }

bool is_library_operator(const OpDef& op) {
  std::string_view name = op.host_name;
  if (is_host_transform(op)) {
    name.remove_prefix(kTransformed.size());
    for (int part = 0; part < 2; ++part) name.remove_prefix(name.find(':') + 1);
  }
  return name.find("::") != std::string_view::npos && !name.starts_with("aten::") && !name.starts_with("tatara::");
}

const OpDef& host_transform(const OpDef& op, HostTransform transform) {
  struct Made {
    ForkSafeMutex mutex;
    std::map<std::tuple<std::string, std::string, HostTransform>, std::unique_ptr<OpDef>>
        definitions;  // by name, schema
  };
  Made& made = made_once<Made>();
  const std::lock_guard lock(made.mutex);
  std::unique_ptr<OpDef>& place = made.definitions[{op.name, op.schema_text, transform}];
  if (place == nullptr) place = make(op, transform);
  return *place;
}

}  // namespace tatara
