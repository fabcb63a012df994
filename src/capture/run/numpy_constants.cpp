#include "capture/run/numpy_constants.h"

#include <algorithm>
#include <cstring>

namespace tatara::capture {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 20;

/// The call's result, where it says nothing: no warning of Python's, no floating-point fault. Null without an error otherwise.
Ref call_quietly(const NumpyApi& np, const TapeNode& node, PyObject* args, PyObject* kwargs) {
  const Ref warnings = Ref::steal(PyImport_ImportModule("warnings"));
  const Ref record = Ref::steal(Py_BuildValue("{s:O}", "record", Py_True));
  const Ref none = Ref::steal(PyTuple_New(0));
  const Ref type = warnings ? attr_or_null(warnings.get(), "catch_warnings") : Ref();
  const Ref scope = type && record ? Ref::steal(PyObject_Call(type.get(), none.get(), record.get())) : Ref();
  const Ref said = scope ? Ref::steal(PyObject_CallMethod(scope.get(), "__enter__", nullptr)) : Ref();
  Ref result;
  if (said && Ref::steal(PyObject_CallMethod(warnings.get(), "simplefilter", "s", "always"))) {
    const Ref raises = Ref::steal(Py_BuildValue("{s:s}", "all", "raise"));
    const Ref state =
        Ref::steal(PyObject_Call(attr_or_null(np.numpy.get(), "errstate").get(), none.get(), raises.get()));
    if (state && Ref::steal(PyObject_CallMethod(state.get(), "__enter__", nullptr))) {
      result = Ref::steal(PyObject_Call(node.func.get(), args, kwargs));
      const ErrorAside aside;
      const Ref left = Ref::steal(PyObject_CallMethod(state.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
      if (!left) forget_error();
    }
    forget_error();
  }
  if (said) {
    const Ref left = Ref::steal(PyObject_CallMethod(scope.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
    if (!left || PyList_GET_SIZE(said.get()) != 0) result = Ref();
  }
  forget_error();
  return result;
}

}  // namespace

ConstantCalls::ConstantCalls(const Tape& tape, const NumpyApi& np)
    : tape_(tape),
      np_(np),
      writes_(std::any_of(tape.nodes().begin(), tape.nodes().end(), [](const TapeNode& n) { return n.mutates; })) {}

bool ConstantCalls::run(const TapeNode& node) {
  const auto* call = std::get_if<NumpyOperation>(&node.kind);
  if (call == nullptr || call->errstate || call->as_it_stands || !call->decides.empty() || node.mutates) return false;
  if (node.name.starts_with("empty")) return false;
  for (const int slot : node.outputs) {
    if (!tape_.slots()[static_cast<size_t>(slot)].constant) return false;
  }
  bool known = true;
  const auto fill = [&](PyObject* object) {
    const int slot = slot_of(object);
    if (slot < 0) return Ref::borrow(object);
    Ref found = value(slot);
    known = known && found;
    return found ? found : Ref::borrow(Py_None);
  };
  const Ref args = map_structure(node.args.get(), fill);
  const Ref kwargs = node.kwargs ? map_structure(node.kwargs.get(), fill) : Ref();
  if (!known || !args) return false;
  const Ref result = call_quietly(np_, node, args.get(), kwargs.get());
  if (!result) return false;
  std::vector<PyObject*> parts;
  if (node.sequence) {
    flatten_result(result.get(), parts);
  } else {
    parts.push_back(result.get());
  }
  if (parts.size() != node.outputs.size()) return false;
  for (size_t i = 0; i < parts.size(); ++i) values_[node.outputs[i]] = Ref::borrow(parts[i]);
  return true;
}

Ref ConstantCalls::value(int slot) {
  if (const auto found = values_.find(slot); found != values_.end()) return found->second;
  if (!tape_.makes(slot) || !run(*tape_.maker(slot))) return {};
  const auto found = values_.find(slot);
  return found == values_.end() ? Ref() : found->second;
}

ConstantCalls::Results ConstantCalls::results(const TapeNode& node) {
  Results made;
  if (writes_ || node.outputs.empty()) return {};
  for (const int slot : node.outputs) {
    const TapeSlot& info = tape_.slots()[static_cast<size_t>(slot)];
    const bool own = (info.owns || info.fresh || info.scalar) && !info.read_only && info.constant;
    Ref found = own && tape_.maker(slot) == &node ? value(slot) : Ref();
    TensorMeta meta;
    if (!found || !np_.read_meta(found.get(), meta)) return {};
    if (!info.scalar && NumpyApi::size_of(found.get()) * 16 > kMostBytes) return {};
    made.emplace_back(slot, std::move(found));
  }
  return made;
}

bool ConstantCalls::give(const Results& results, std::vector<Ref>& env, const NumpyApi& np) {
  for (const auto& [slot, kept] : results) {
    Ref& place = env[static_cast<size_t>(slot)];
    if (!np.is_array(kept.get())) {
      place = kept;
      continue;
    }
    DType dtype = DType::kFloat32;
    std::vector<int64_t> sizes, strides;
    if (!np.describe(kept.get(), dtype, sizes, strides)) return false;
    place = np.new_array(dtype, sizes, strides);
    if (!place) return false;
    const auto bytes = static_cast<size_t>(NumpyApi::size_of(kept.get()) * dtype_size(dtype));
    if (bytes != 0) std::memcpy(NumpyApi::data(place.get()), NumpyApi::data(kept.get()), bytes);
    if (!NumpyApi::owns_memory(kept.get())) {
      place = np.view(place.get(), NumpyApi::data(place.get()), dtype, sizes, strides);
      if (!place) return false;
    }
  }
  return true;
}

}  // namespace tatara::capture
