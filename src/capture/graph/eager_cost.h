// What recorded calls take in eager, roughly.
#pragma once

#include "capture/tape/tape.h"

namespace tatara::capture {

/// Seconds of one call: some for the call itself, and the time that its results take to be written.
double seconds_in_eager(const Tape& tape, const TapeNode& node);

}  // namespace tatara::capture
