// What the options cpu and cpu_features take: LLVM prints a line for a name that it does not know, or ends the process.
#pragma once

#include <string>

namespace tatara {

/// From now on the two options are checked wherever they are set (options.h).
void install_cpu_option_checks();

/// Turns features off that the machine lacks: those with a minus in `host_features`, LLVM's own description of it.
std::string lacking_features(const std::string& host_features);

}  // namespace tatara
