// Which of the registry's operators a recorded call is.
#pragma once

#include <string>

#include "capture/tape/tape.h"

namespace tatara::capture {

/// The registry's name of the function ("torch.Tensor.add"). Throws Unsupported when it has none.
std::string dotted_name(const TapeNode& node);

/// Whether the registry knows that the call's one result requires grad where an operand does.
bool hands_on_history(const TapeNode& node);

/// Whether the registry knows that the call gives tensors of their own.
bool is_no_view(const TapeNode& node);

}  // namespace tatara::capture
