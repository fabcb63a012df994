// A backward pass of the host in which a node of ours takes part.
#pragma once

#include "capture/py.h"

namespace tatara::capture {

/// Called by a node: handlers of signals wait until the host's engine is done with the present pass. No Python code runs while
/// it goes through its own nodes, so to eager a pass is one step, in which no handler sees half of the gradients.
void wait_for_engine();

}  // namespace tatara::capture
