// Calls whose results say how the program goes on, and that read what comes in alone: they may run before all others.
#pragma once

#include <cstddef>

#include "capture/tape/tape.h"

namespace tatara::capture {

/// Puts the calls by which data decide, and those that lead there, before all others of a detached tape, as far as they are few,
/// small, and read nothing that the tape writes to. So what follows is one graph. Returns how many they are.
/// `call`, a node's place, is changed to its place from then on.
size_t run_early(Tape& tape, size_t& call);

}  // namespace tatara::capture
