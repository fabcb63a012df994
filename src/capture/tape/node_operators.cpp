#include "capture/tape/node_operators.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include "capture/host/torch_api.h"
#include "ops/core/op_def.h"
#include "support/error.h"

namespace tatara::capture {
namespace {
using Candidates = std::vector<OpRegistry::PythonName>;

/// The registry's Python names, resolved to objects once.
const std::unordered_map<PyObject*, std::string>& named_functions() {
  static const auto* table = [] {
    auto* made = new std::unordered_map<PyObject*, std::string>;
    for (const std::string& dotted : OpRegistry::global().python_names()) {
      if (dotted.rfind("torch.", 0) != 0) continue;
      Ref object = Ref::steal(PyImport_ImportModule("torch"));
      for (size_t at = 5; object && at != std::string::npos;) {
        const size_t next = dotted.find('.', at + 1);
        object = attr_or_null(object.get(), dotted.substr(at + 1, next - at - 1).c_str());
        at = next;
      }
      if (!object) continue;
      forget_error();
      // A getter ("torch.Tensor.T.__get__") is known by its descriptor.
      if (std::strcmp(Py_TYPE(object.get())->tp_name, "method-wrapper") == 0) object = attr(object.get(), "__self__");
      made->emplace(object.release(), dotted);  // identity stays taken
    }
    return made;
  }();
  return *table;
}

}  // namespace

std::string dotted_name(const TapeNode& node) {
  PyObject* key = node.func.get();
  Ref self;
  if (std::strcmp(Py_TYPE(key)->tp_name, "method-wrapper") == 0) {
    self = attr(key, "__self__");
    key = self.get();
  }
  const auto& table = named_functions();
  if (const auto found = table.find(key); found != table.end()) return found->second;
  // An operator of the dispatcher (torch.ops.aten.add.Tensor) is called by its own name.
  // Its arguments have the order of torch's function, which a method's may not have (where).
  using Prefixes = std::array<const char*, 4>;
  constexpr Prefixes kOperators = {"torch.", "torch.Tensor.", "torch._C._nn.", "torch.nn.functional."};
  constexpr Prefixes kMethods = {"torch.Tensor.", "torch.", "torch.nn.functional.", "torch._C._nn."};
  for (const char* prefix : is_dispatcher_operator(key) ? kOperators : kMethods) {
    const std::string name = prefix + node.name;
    if (OpRegistry::global().find_python(name) != nullptr) return name;
  }
  throw Unsupported("no operator for torch's " + node.name);
}

bool hands_on_history(const TapeNode& node) {
  if (node.outputs.size() != 1 || node.sequence) return false;
  try {
    const Candidates* candidates = OpRegistry::global().find_python(dotted_name(node));
    return candidates != nullptr && std::all_of(candidates->begin(), candidates->end(), [](const auto& candidate) {
             const OpDef& op = *candidate.op;
             return (op.vjp || op.differentiable_parts) && !op.not_differentiable;
           });
  } catch (const Unsupported&) {
    return false;
  }
}

bool is_no_view(const TapeNode& node) {
  try {
    const Candidates* candidates = OpRegistry::global().find_python(dotted_name(node));
    return candidates != nullptr && std::none_of(candidates->begin(), candidates->end(), [](const auto& candidate) {
             return candidate.op->kind == OpKind::kView;
           });
  } catch (const Unsupported&) {
    return false;
  }
}

}  // namespace tatara::capture
