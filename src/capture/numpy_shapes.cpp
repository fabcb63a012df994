// Rules of calls that are no ufuncs.
#include <algorithm>

#include "capture/numpy_rules_internal.h"
#include "support/error.h"

namespace tatara::capture {
namespace {

using ArrayRef = NumpyGraph::ArrayRef;

void rule_where(NumpyGraph& graph, const TapeNode& node) {
  const NumpyRules g{graph};
  const NumpyArgs args(node, g.np(), {"condition", "x", "y"});
  const DType dtype = g.result_dtype(node);
  const ValueId condition = g.as_dtype(args["condition"], DType::kBool);
  g.set_value(node, 0, g.b().where(condition, g.as_dtype(args["x"], dtype), g.as_dtype(args["y"], dtype)));
}

}  // namespace

const std::unordered_map<std::string, NumpyRule>& numpy_shape_rules() {
  static const std::unordered_map<std::string, NumpyRule> rules = {{"where", rule_where}};
  return rules;
}

}  // namespace tatara::capture
