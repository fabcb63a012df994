#include "capture/tape/view_origins.h"

#include <string_view>
#include <unordered_set>

#include "capture/tape/node_operators.h"

namespace tatara::capture {

bool may_be_view(const TapeNode& node) {
  // What the registry takes apart, or makes for reading alone.
  static const std::unordered_set<std::string_view> names = {"__getitem__",
                                                             "reshape",
                                                             "reshape_as",
                                                             "flatten",
                                                             "unflatten",
                                                             "ravel",
                                                             "contiguous",
                                                             "to",
                                                             "t",
                                                             "T",
                                                             "mT",
                                                             "H",
                                                             "mH",
                                                             "real",
                                                             "imag",
                                                             "split",
                                                             "chunk",
                                                             "unbind",
                                                             "view",
                                                             "unfold",
                                                             "as_strided",
                                                             "view_as",
                                                             "expand_as",
                                                             "hsplit",
                                                             "vsplit",
                                                             "dsplit",
                                                             "tensor_split",
                                                             "split_with_sizes",
                                                             "swapaxes",
                                                             "swapdims",
                                                             "movedim",
                                                             "moveaxis",
                                                             "adjoint",
                                                             "detach",
                                                             "data",
                                                             "alias",
                                                             "narrow",
                                                             "unsafe_chunk",
                                                             "atleast_1d",
                                                             "atleast_2d",
                                                             "atleast_3d",
                                                             "broadcast_to"};
  return names.contains(node.name) || !is_no_view(node);
}

ViewOrigin view_origin(const Tape& tape, int slot) {
  ViewOrigin origin;
  for (int at = slot;;) {
    const TapeNode* made = tape.makes(at) ? tape.maker(at) : nullptr;
    if (made == nullptr || !may_be_view(*made) || PyTuple_GET_SIZE(made->args.get()) == 0) break;
    const int operand = slot_of(PyTuple_GET_ITEM(made->args.get(), 0));
    if (operand < 0 || operand == at) break;
    if (detaches(*made)) {
      origin.constant = true;
      origin.detached = origin.detached || at == slot;
    }
    origin.recorded = origin.recorded || made->grad;
    if (!origin.constant) origin.bases.push_back(operand);
    origin.base = at = operand;
  }
  return origin;
}

}  // namespace tatara::capture
