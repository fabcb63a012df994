// The inverse of print_kernel.
#pragma once

#include <string_view>

#include "loops/kernel.h"

namespace tatara::loops {

/// A kernel from the text that print_kernel gives; printing it gives the text again. Loop variables and lookups get the
/// ranges that their extents say, size symbols [0, inf), or any value where they are signed. InvalidArgument with the line on malformed text; the result is
/// not verified.
Kernel parse_kernel(std::string_view text);

}  // namespace tatara::loops
