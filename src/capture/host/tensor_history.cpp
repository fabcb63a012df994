#include "capture/host/tensor_history.h"

#include "capture/host/tensor_words.h"
#include "runtime/host/torch_abi.h"

namespace tatara::capture {
namespace {

using torch_abi::load_symbol;

// Of Python's tensor object, after its implementation: a dict of hooks each, or null.
struct HookPlaces {
  PyObject *backward, *post_accumulate;
};

const HookPlaces& hook_places(PyObject* tensor) { return *reinterpret_cast<const HookPlaces*>(impl_place(tensor) + 1); }

}  // namespace

void TensorHistory::find(PyObject* torch, void* library) {
  const Ref arguments = Ref::steal(Py_BuildValue("(i)", 2)), keywords = Ref::steal(PyDict_New());
  if (!arguments || PyDict_SetItemString(keywords.get(), "requires_grad", Py_True) != 0) return forget_error();
  const Ref make = attr_or_null(torch, "zeros");
  const Ref example = Ref::steal(make ? PyObject_Call(make.get(), arguments.get(), keywords.get()) : nullptr);
  if (!example) return forget_error();
  load_symbol(library, requires_grad_, "_ZNK3c1010TensorImpl13requires_gradEv");
  load_symbol(library, is_leaf_, "_ZNK2at10TensorBase7is_leafEv");
  load_symbol(library, grad_, "_ZNK3c1010TensorImpl4gradEv");
  if (grad_ != nullptr) {
    undefined_ = *grad_(impl_of(example.get()));
    const Ref gradient = Ref::steal(PyObject_CallMethod(torch, "zeros", "i", 2));
    const bool known = gradient && PyObject_SetAttrString(example.get(), "grad", gradient.get()) == 0 &&
                       *grad_(impl_of(example.get())) == impl_of(gradient.get());
    if (!known) grad_ = nullptr;
  }
  const Ref hooks = Ref::steal(PyDict_New()), others = Ref::steal(PyDict_New());
  const HookPlaces& places = hook_places(example.get());
  hooks_known_ = places.backward == nullptr && places.post_accumulate == nullptr &&
                 PyObject_SetAttrString(example.get(), "_backward_hooks", hooks.get()) == 0 &&
                 PyObject_SetAttrString(example.get(), "_post_accumulate_grad_hooks", others.get()) == 0 &&
                 places.backward == hooks.get() && places.post_accumulate == others.get();
  forget_error();
}

std::optional<bool> TensorHistory::requires_grad(PyObject* tensor) const {
  if (requires_grad_ == nullptr || impl_of(tensor) == nullptr) return std::nullopt;
  return requires_grad_(impl_of(tensor));
}

std::optional<bool> TensorHistory::is_leaf(PyObject* tensor) const {
  if (is_leaf_ == nullptr || impl_of(tensor) == nullptr) return std::nullopt;
  return is_leaf_(impl_place(tensor));
}

std::optional<bool> TensorHistory::has_gradient(PyObject* tensor) const {
  if (grad_ == nullptr || impl_of(tensor) == nullptr) return std::nullopt;
  return *grad_(impl_of(tensor)) != undefined_;
}

std::optional<bool> TensorHistory::has_hooks(PyObject* tensor) const {
  if (!hooks_known_) return std::nullopt;
  const HookPlaces& places = hook_places(tensor);
  return places.backward != nullptr || places.post_accumulate != nullptr;
}

}  // namespace tatara::capture
