// x[n] with a tensor n of one number: eager reads the number and gives a view, a graph gives a copy.
#pragma once

#include <cstddef>
#include <optional>

#include "capture/tape/tape.h"

namespace tatara::capture {

/// The first such call of a tape where somebody sees the difference: what it gives, or what that is a part of, is written to
/// behind it, or leaves the graph.
std::optional<size_t> hidden_view(const Tape& tape);

}  // namespace tatara::capture
