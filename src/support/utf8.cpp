#include "support/utf8.h"

#include <cstdint>

namespace tatara {

bool is_utf8(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const auto at = [&](size_t k) { return i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : uint8_t{0}; };
    const uint8_t first = at(0);
    if (first < 0x80) {
      ++i;
      continue;
    }
    const size_t more = first >= 0xc2 && first < 0xe0   ? 1
                        : (first & 0xf0) == 0xe0        ? 2
                        : first >= 0xf0 && first < 0xf5 ? 3
                                                        : 0;
    if (more == 0) return false;
    for (size_t k = 1; k <= more; ++k) {
      if ((at(k) & 0xc0) != 0x80) return false;
    }
    const uint8_t second = at(1);
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) ||
        (first == 0xf4 && second > 0x8f)) {
      return false;
    }
    i += more + 1;
  }
  return true;
}

}  // namespace tatara
