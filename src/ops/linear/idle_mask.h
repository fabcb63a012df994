// Masks of attention that leave everything in.
#pragma once

#include "ir/graph.h"

namespace tatara {

/// Whether a mask of booleans is true everywhere, as far as the graph shows: comparisons of an arange with a number, and what is made of
/// them by views and conjunctions.
bool mask_says_nothing(const Graph& graph, const Arg& mask);

}  // namespace tatara
