#include "capture/tape/node_operators.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "capture/host/known_calls.h"
#include "capture/host/torch_api.h"
#include "ops/core/op_def.h"
#include "support/error.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {
using Candidates = std::vector<OpRegistry::PythonName>;

/// The registry's Python names, resolved to objects once.
const std::unordered_map<PyObject*, std::string>& named_functions() {
  return made_once([] {
    std::unordered_map<PyObject*, std::string> made;
    for (const std::string& dotted : OpRegistry::global().python_names()) {
      // A library's operator is no attribute of torch's.
      if (dotted.rfind("torch.", 0) != 0 || dotted.find("::") != std::string::npos) continue;
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
      made.emplace(object.release(), dotted);  // identity stays taken
    }
    return made;
  });
}

}  // namespace

std::string view_in_place(const TapeNode& node) {
  if (!is_operator_call(node) || !node.func || !known_torch(node.name).is(kChangesLayout) ||
      is_dispatcher_operator(node.func.get())) {
    return {};
  }
  return "torch.Tensor." + node.name.substr(0, node.name.size() - 1);
}

namespace {

const Candidates* candidates_of(const TapeNode& node) {
  const std::string in_place = view_in_place(node), name = in_place.empty() ? known_name(node) : in_place;
  return name.empty() ? nullptr : OpRegistry::global().find_python(name);
}

}  // namespace

bool takes_tensor(const TapeNode& node, size_t place) {
  const Candidates* candidates = candidates_of(node);
  return candidates != nullptr && std::any_of(candidates->begin(), candidates->end(), [place](const auto& candidate) {
           const std::vector<ArgSpec>& args = candidate.op->schema.args;
           return place < args.size() && args[place].type == ArgType::kTensor;
         });
}

std::string known_name(const TapeNode& node) {
  PyObject* key = node.func.get();
  if (key == nullptr) return {};  // the mark of a region
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
  return {};
}

bool any_operator(const TapeNode& node, bool OpTraits::* trait) {
  const Candidates* candidates = candidates_of(node);
  return candidates != nullptr && std::any_of(candidates->begin(), candidates->end(),
                                              [trait](const auto& candidate) { return candidate.op->traits.*trait; });
}

bool any_operator(const TapeNode& node, bool (*is_one)(const OpDef&)) {
  const Candidates* candidates = candidates_of(node);
  return candidates != nullptr && std::any_of(candidates->begin(), candidates->end(),
                                              [is_one](const auto& candidate) { return is_one(*candidate.op); });
}

bool hands_on_history(const TapeNode& node) {
  if (node.outputs.size() != 1 || node.sequence) return false;
  const Candidates* candidates = candidates_of(node);
  return candidates != nullptr && std::all_of(candidates->begin(), candidates->end(), [](const auto& candidate) {
           const OpDef& op = *candidate.op;
           return (op.vjp || op.differentiable_parts) && !op.not_differentiable;
         });
}

/// Whether one of these operators may give a view.
static bool any_view(const Candidates& candidates) {
  return std::any_of(candidates.begin(), candidates.end(), [](const auto& candidate) {
    return candidate.op->kind == OpKind::kView || candidate.op->traits.may_view;
  });
}

bool is_no_view(const TapeNode& node) {
  const Candidates* candidates = candidates_of(node);
  return candidates != nullptr && !any_view(*candidates);
}

/// Whether it indexes by tensors, which copies. A tensor of one number is taken as that number.
static bool takes_places(const Tape& tape, const TapeNode& node) {
  if (node.mutates || !known_torch(node.name).is(kTakesMasks) || PyTuple_GET_SIZE(node.args.get()) != 2) return false;
  bool found = false;
  for_each_slot(PyTuple_GET_ITEM(node.args.get(), 1), [&](int slot) {
    const TapeSlot& index = tape.slots()[static_cast<size_t>(slot)];
    found = found || (!index.number && index.sizes && PyTuple_GET_SIZE(index.sizes.get()) > 0 && !tape.reshaped(slot));
  });
  return found;
}

bool may_be_view(const Tape& tape, const TapeNode& node) {
  if (is_numpy_operation(node)) {
    return std::none_of(node.outputs.begin(), node.outputs.end(), [&tape](int slot) {
      return slot >= 0 &&
             (tape.slots()[static_cast<size_t>(slot)].owns || tape.slots()[static_cast<size_t>(slot)].scalar);
    });
  }
  const Candidates* candidates = candidates_of(node);
  if (takes_places(tape, node)) return false;
  return candidates == nullptr || any_view(*candidates);
}

Ref host_schema(PyObject* func) {
  if (Ref schema = attr_or_null(func, "_schema")) return schema;
  forget_error();
  const Ref overloads = Ref::steal(PyObject_CallMethod(func, "overloads", nullptr));
  Ref only;
  if (overloads && PyList_Check(overloads.get()) && PyList_GET_SIZE(overloads.get()) == 1) {
    only = Ref::steal(PyObject_GetAttr(func, PyList_GET_ITEM(overloads.get(), 0)));
  }
  Ref schema = only ? attr_or_null(only.get(), "_schema") : Ref();
  if (!schema) forget_error();
  return schema;
}

bool says_no_view(const TapeNode& node) {
  PyObject* func = node.func.get();
  const Ref schema = func != nullptr && is_dispatcher_operator(func) ? host_schema(func) : Ref();
  const Ref returns = schema ? attr_or_null(schema.get(), "returns") : Ref();
  if (!returns || !PyList_Check(returns.get())) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(returns.get()); ++i) {
    const Ref alias = attr_or_null(PyList_GET_ITEM(returns.get(), i), "alias_info");
    if (!alias || alias.get() != Py_None) return false;
  }
  return true;
}

bool makes_without_draws(const TapeNode& node) {
  bool reads = false;
  const auto look = [&reads](int) { reads = true; };
  for_each_slot(node.args.get(), look);
  if (node.kwargs) for_each_slot(node.kwargs.get(), look);
  const Candidates* const candidates = candidates_of(node);
  return !reads && candidates != nullptr &&
         std::none_of(candidates->begin(), candidates->end(), [](const auto& each) { return each.op->draws(); });
}

bool varies(const TapeNode& node) {
  if (const Candidates* candidates = candidates_of(node)) {
    return std::any_of(candidates->begin(), candidates->end(), [](const auto& candidate) {
      const OpDef& op = *candidate.op;
      return op.draws() || op.traits.varies;
    });
  }
  // Of calls that the registry lacks (torch._fused_dropout, a user's own), names alone say something.
  static constexpr std::array<std::string_view, 14> kParts = {
      "rand",    "dropout",     "bernoulli",   "normal", "gamma", "dirichlet", "uniform",
      "poisson", "multinomial", "exponential", "cauchy", "empty", "geometric", "rrelu"};
  return std::any_of(kParts.begin(), kParts.end(),
                     [&](std::string_view part) { return node.name.find(part) != std::string::npos; });
}

bool is_same_in_each_call(const TapeNode& node) {
  if (!known_torch(node.name).is(kFactory) || node.level != 0 || node.mutates || node.outputs.size() != 1 ||
      node.has_generator() || varies(node))
    return false;
  bool same = true;
  for (PyObject* const given : {node.args.get(), node.kwargs.get()}) {
    if (given == nullptr) continue;
    map_structure(given, [&same](PyObject* o) {
      same = same && slot_of(o) < 0 && !is_size_ref(o);
      return Ref::borrow(o);
    });
  }
  PyObject* const leaf = node.kwargs ? PyDict_GetItemString(node.kwargs.get(), "requires_grad") : nullptr;
  return same && (leaf == nullptr || leaf == Py_False);
}

const char* factor_argument(std::string_view name, PyObject* args) {
  if (name.ends_with('_')) name.remove_suffix(1);
  const OpDef* op = OpRegistry::global().find(name);
  if (op == nullptr || !op->traits.scales_sum) return nullptr;
  const std::vector<ArgSpec>& all = op->schema.args;
  return static_cast<size_t>(PyTuple_GET_SIZE(args)) + 1 == all.size() ? all.back().name.c_str() : nullptr;
}

}  // namespace tatara::capture
