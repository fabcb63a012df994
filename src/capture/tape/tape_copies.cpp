// An open tape where turns of a loop are copied on it.
#include "capture/tape/tape.h"

namespace tatara::capture {

void set_alike(Tape& tape, size_t node) { tape.nodes_[node].alike = static_cast<int>(node); }

int add_copy(Tape& tape, int like, Ref placeholder) {
  const int index = static_cast<int>(tape.slots_.size());
  TapeSlot slot = tape.slots_[static_cast<size_t>(like)];
  slot.real_strides = Ref();
  tape.seen_.copies = tape.seen_.copies || !placeholder;
  slot.object = slot.meta = std::move(placeholder);
  if (slot.object) tape.by_object_[slot.object.get()] = tape.by_meta_[slot.object.get()] = index;
  tape.slots_.push_back(std::move(slot));
  return index;
}

std::vector<int> settle_sizes(Tape& tape, size_t first, size_t first_slot, std::span<const int64_t> symbols) {
  const auto settled = [symbols](PyObject* o) { return is_size_ref(o) ? size_ref_value(o, symbols) : Ref::borrow(o); };
  for (size_t n = first; n < tape.nodes_.size(); ++n) {
    for (Ref* arguments : {&tape.nodes_[n].args, &tape.nodes_[n].kwargs}) {
      if (holds_size_ref(arguments->get())) *arguments = map_structure(arguments->get(), settled);
    }
  }
  std::vector<int> varying;
  for (size_t slot = first_slot; slot < tape.slots_.size(); ++slot) {
    TapeSlot& of = tape.slots_[slot];
    if (of.symbolic_sizes.empty() && of.symbolic_strides.empty()) continue;
    of.symbolic_sizes.clear();
    of.symbolic_strides.clear();
    varying.push_back(static_cast<int>(slot));
  }
  return varying;
}

}  // namespace tatara::capture
