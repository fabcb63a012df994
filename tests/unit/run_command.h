// Programs that unit tests start, such as NVIDIA's assembler.
#pragma once

#include <cstdio>
#include <string>
#include <utility>

namespace tatara {

/// Output and exit status of a command.
inline std::pair<std::string, int> run_command(const std::string& command) {
  std::string text;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {"", -1};
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof(buffer), pipe)) text.append(buffer, n);
  return {text, pclose(pipe)};
}

}  // namespace tatara
