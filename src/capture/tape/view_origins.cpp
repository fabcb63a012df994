#include "capture/tape/view_origins.h"

namespace tatara::capture {

ViewOrigin view_origin(const Tape& tape, int slot) {
  ViewOrigin origin;
  for (int at = slot;;) {
    const TapeNode* made = tape.makes(at) ? tape.maker(at) : nullptr;
    if (made == nullptr || !may_be_view(tape, *made) || PyTuple_GET_SIZE(made->args.get()) == 0) break;
    const int operand = slot_of(PyTuple_GET_ITEM(made->args.get(), 0));
    if (operand < 0 || operand == at) break;
    if (detaches(*made)) {
      origin.constant = true;
      origin.detached = origin.detached || at == slot;
    }
    origin.recorded = origin.recorded || made->grad;
    origin.silent = origin.silent || !made->grad;
    if (!origin.constant) origin.bases.push_back(operand);
    origin.base = at = operand;
  }
  return origin;
}

}  // namespace tatara::capture
