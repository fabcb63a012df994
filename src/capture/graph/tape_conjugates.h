// Views of complex tensors that are conjugated when they are read.
#pragma once

#include <optional>

#include "capture/graph/tape_conversion.h"

namespace tatara::capture {

/// The numbers of such a view, where nothing but the graph sees it: it is no result, nor are views of it, and nobody writes to its memory.
/// Nothing for other nodes, and where eager's view has to be made. `whole`: the tape is whole; else is_conjugate_seen() asks when it is.
std::optional<ValueId> conjugated_inside(TapeConversion& c, const TapeNode& node, bool whole);
/// resolve_conj() or resolve_neg() of a tensor that is no such view: it gives that tensor.
bool resolves_nothing(const TapeNode& node);
/// Whether the program sees the view of a node that conjugated_inside() took on, now that the tape is whole.
bool is_conjugate_seen(const TapeConversion& c, const TapeNode& node);

}  // namespace tatara::capture
