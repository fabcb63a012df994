// Statements of which a kernel has one.
#pragma once

#include "loops/kernel.h"

namespace tatara::loops {

/// The first statement of a kind in the block and its loops; null: there is none.
template <typename T>
const T* find_statement(const Block& block) {
  for (const Stmt& stmt : block.stmts) {
    if (const auto* found = std::get_if<T>(&stmt)) return found;
    const auto* loop = std::get_if<For>(&stmt);
    if (const T* inside = loop == nullptr ? nullptr : find_statement<T>(*loop->body)) return inside;
  }
  return nullptr;
}

}  // namespace tatara::loops
