// Pieces of PTX, as inline assembly of LLVM.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "support/str_cat.h"

namespace tatara::codegen {

/// Lines of PTX in a string of LLVM.
class Ptx {
 public:
  template <typename... Parts>
  void operator()(const Parts&... parts) {
    text_ += str_cat(parts..., "\\0A\\09");
  }
  void raw(const std::string& lines) { text_ += lines; }
  /// Waits, with the predicate p, until a barrier has left the phase of this parity.
  void wait(std::string_view label, std::string_view barrier, std::string_view parity) {
    (*this)(label, ":");
    (*this)("mbarrier.try_wait.parity.shared::cta.b64 p, [", barrier, "], ", parity, ";");
    (*this)("@!p bra ", label, ";");
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace tatara::codegen
