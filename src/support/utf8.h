#pragma once

#include <string_view>

namespace tatara {

/// Whether the bytes are UTF-8 as Python decodes it: nothing longer than needed, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view bytes);

}  // namespace tatara
