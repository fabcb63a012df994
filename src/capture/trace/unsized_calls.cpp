// Calls of torch's own that have no kernel for tensors without data: nobody tells the types of their results before they have run.
#include <algorithm>
#include <string_view>

#include "capture/tape/node_operators.h"
#include "capture/trace/history_tracing.h"
#include "capture/trace/torch_tracing.h"
#include "capture/trace/tracer_internal.h"
#include "capture/trace/transform_tracing.h"
#include "capture/trace/value_tracing.h"

namespace tatara::capture {
namespace {

constexpr Py_ssize_t kMostUnsized = 6;  // results of one call

/// Such a call gives new tensors and changes nothing, as far as its name tells.
bool may_be_pure(std::string_view name, PyObject* kwargs) {
  const bool writes = name.ends_with('_') || name.starts_with("__i") || name == "__setitem__";
  return !writes && (kwargs == nullptr || PyDict_GetItemString(kwargs, "out") == nullptr);
}

bool share_memory(PyObject* a, PyObject* b) {
  const std::optional<int64_t> one = storage_address(a), other = storage_address(b);
  return !one || !other || (*one == *other && *one != 0);
}

}  // namespace

/// The results as the call gives them now, with nothing that is older among them; empty: it is no such call.
std::vector<PyObject*> ValueTracing::own_results(PyObject* now, const std::vector<PyObject*>& operands) {
  std::vector<PyObject*> results;
  const bool many = PyTuple_Check(now) || PyList_Check(now);
  if (many && PySequence_Fast_GET_SIZE(now) > kMostUnsized) return {};
  for (Py_ssize_t i = 0; i < (many ? PySequence_Fast_GET_SIZE(now) : 1); ++i) {
    results.push_back(many ? PySequence_Fast_GET_ITEM(now, i) : now);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    TensorMeta meta;
    if (!api_.is_plain_tensor(results[i]) || api_.is_numpy(results[i]) || !api_.read_meta(results[i], meta)) return {};
    const auto shared = [&](PyObject* other) { return share_memory(results[i], other); };
    if (std::any_of(operands.begin(), operands.end(), shared) ||
        std::any_of(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(i), shared))
      return {};
  }
  return results;
}

Ref ValueTracing::record_unsized(const TorchFunction& fn, PyObject* func, PyObject* args, PyObject* kwargs) {
  Trace& t = *trace_;
  if (fn.dispatcher || !may_be_pure(fn.name, kwargs)) return {};
  const Bypass bypass(bypass_);
  TapeNode node;
  node.func = Ref::borrow(func);
  node.name = fn.name;
  std::vector<int> slots;
  bool plain = true;
  const auto note = [&](PyObject* o) {
    // A generator of the program's would go on.
    plain = plain && std::string_view(Py_TYPE(o)->tp_name) != "torch._C.Generator";
    if (!api_.is_tensor(o)) return Ref::borrow(o);
    slots.push_back(api_.is_plain_tensor(o) && !api_.is_numpy(o) ? slot_for(o) : -1);
    plain = plain && slots.back() >= 0;
    return Ref::borrow(o);
  };
  map_structure(args, note);
  if (kwargs != nullptr) map_structure(kwargs, note);
  if (!plain || slots.empty()) return {};
  const Ref before = generator_states(api_);
  const Ref now = before ? call_now(func, args, kwargs) : Ref();
  const Ref behind = now ? generator_states(api_) : Ref();
  forget_error();
  if (!behind) {
    if (before) set_generator_states(before.get());
    return {};
  }
  std::vector<PyObject*> operands;
  for (const int slot : slots) {
    if (!own_.env[static_cast<size_t>(slot)]) return {};
    operands.push_back(own_.env[static_cast<size_t>(slot)].get());
  }
  const std::vector<PyObject*> results = own_results(now.get(), operands);
  if (!same_states(api_, before.get(), behind.get())) {
    set_generator_states(before.get());
    return {};
  }
  const Ref device = t.tape.slots()[static_cast<size_t>(slots[0])].device;
  const auto fits = [&](PyObject* result) {
    const Ref place = attr_or_null(result, "device");
    return PyObject_RichCompareBool(place.get(), device.get(), Py_EQ) == 1;
  };
  if (results.empty() || !std::all_of(results.begin(), results.end(), fits)) return {};
  node.args = on_tape(args);
  node.kwargs = kwargs != nullptr && PyDict_GET_SIZE(kwargs) > 0 ? on_tape(kwargs) : Ref();
  node.sequence = !api_.is_tensor(now.get());
  ExprContext& ctx = t.symbols.ctx();
  const Ref made = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(results.size())));
  for (size_t i = 0; i < results.size(); ++i) {
    TensorMeta meta;
    if (!api_.read_meta(results[i], meta)) return {};
    const Ref placeholder = placeholder_like(results[i], meta);
    if (!placeholder) return {};
    const int slot = t.tape.add_placeholder(placeholder.get(), device);
    std::vector<Expr> sizes;
    for (size_t d = 0; d < meta.sizes.size(); ++d) {
      sizes.push_back(t.symbols.add_made(meta.sizes[d], slot, static_cast<int>(d), {0, int64_t{1} << 40}));
    }
    t.tape.set_layout(slot, sizes, strides_like(ctx, sizes, meta));
    node.outputs.push_back(slot);
    PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i), Py_NewRef(placeholder.get()));
  }
  transforms().note_modes(node);
  histories().note_silent_views(node);
  const bool sequence = node.sequence;
  add_done(std::move(node), results);
  if (!sequence) return Ref::borrow(PyTuple_GET_ITEM(made.get(), 0));
  if (PyTuple_CheckExact(now.get())) return made;
  if (PyList_Check(now.get())) return Ref::steal(PySequence_List(made.get()));
  return Ref::steal(
      PyObject_CallOneArg(reinterpret_cast<PyObject*>(Py_TYPE(now.get())), made.get()));  // torch.return_types
}

}  // namespace tatara::capture
