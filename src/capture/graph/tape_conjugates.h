// Views of complex tensors that are conjugated when they are read.
#pragma once

#include <optional>

#include "capture/graph/tape_conversion.h"

namespace tatara::capture {

/// The numbers of such a view, where nothing but the graph sees it: it is no result, nor are views of it, and nobody writes to its memory.
/// Nothing for other nodes, and where eager's view has to be made.
std::optional<ValueId> conjugated_inside(TapeConversion& c, const TapeNode& node);

}  // namespace tatara::capture
