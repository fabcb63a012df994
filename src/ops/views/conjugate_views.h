// Views of complex numbers that eager conjugates when they are read.
#pragma once

#include "ops/core/op_def.h"

namespace tatara {

/// conj, H and mH.
inline bool conjugates_lazily(const OpDef& op) { return op.name == "conj" || op.name == "H" || op.name == "mH"; }
/// Those with the last two dims swapped.
inline bool swaps_and_conjugates(const OpDef& op) { return op.name == "H" || op.name == "mH"; }

inline bool resolves_negations(const OpDef& op) { return op.name == "resolve_neg"; }

/// Eager raises where it is given such a view.
inline bool refuses_conjugates(const OpDef& op) { return op.name == "view_as_real"; }

}  // namespace tatara
