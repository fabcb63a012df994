// The guards of an entry as text, one line each, in the order in which they are checked.
#pragma once

#include <string>
#include <vector>

#include "capture/entries/entry_cache.h"

namespace tatara::capture {

std::vector<std::string> guard_lines(const Entry& entry);

}  // namespace tatara::capture
