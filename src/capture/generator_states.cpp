#include "capture/generator_states.h"

#include "support/log.h"

namespace tatara::capture {

GeneratorStates::GeneratorStates(const Tape& tape, const TorchApi& api) {
  if (!api.present()) return;
  const ErrorAside aside;
  keep(attr_or_null(api.torch.get(), "default_generator").get());
  const Ref cuda = attr_or_null(api.torch.get(), "cuda");
  const Ref all = cuda ? attr_or_null(cuda.get(), "default_generators") : Ref();  // none before CUDA is initialised
  if (all && PyTuple_Check(all.get())) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all.get()); ++i) keep(PyTuple_GET_ITEM(all.get(), i));
  }
  for (const TapeNode& node : tape.nodes()) {
    if (node.generator != nullptr) keep(node.generator);
  }
}

void GeneratorStates::keep(PyObject* generator) {
  Ref state = generator != nullptr ? Ref::steal(PyObject_CallMethod(generator, "get_state", nullptr)) : Ref();
  if (state) states_.emplace_back(Ref::borrow(generator), std::move(state));
  forget_error();
}

void GeneratorStates::put_back() const {
  const ErrorAside aside;
  for (const auto& [generator, state] : states_) {
    if (Ref::steal(PyObject_CallMethod(generator.get(), "set_state", "O", state.get()))) continue;
    TATARA_LOG(kCapture, "a generator's state is not put back: ", take_error_text());
  }
}

}  // namespace tatara::capture
