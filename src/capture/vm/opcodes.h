// Sizes of instructions in the plain bytecode of each CPython version.
#pragma once

#include <Python.h>
#include <opcode.h>

#include <array>
#include <cstdint>

namespace tatara::capture::vm {

/// Number of inline cache entries (code units) that follow an instruction.
constexpr std::array<std::uint8_t, 256> make_cache_sizes() {
  std::array<std::uint8_t, 256> sizes{};
  sizes[BINARY_OP] = 1;
  sizes[UNPACK_SEQUENCE] = 1;
  sizes[STORE_SUBSCR] = 1;
  sizes[STORE_ATTR] = 4;
#if PY_VERSION_HEX < 0x030C0000
  sizes[BINARY_SUBSCR] = 4;
  sizes[COMPARE_OP] = 2;
  sizes[LOAD_GLOBAL] = 5;
  sizes[LOAD_ATTR] = 4;
  sizes[LOAD_METHOD] = 10;
  sizes[PRECALL] = 1;
  sizes[CALL] = 4;
#else
  sizes[BINARY_SUBSCR] = 1;
  sizes[COMPARE_OP] = 1;
  sizes[LOAD_GLOBAL] = 4;
  sizes[LOAD_ATTR] = 9;
  sizes[LOAD_SUPER_ATTR] = 1;
  sizes[CALL] = 3;
  sizes[FOR_ITER] = 1;
  sizes[SEND] = 1;
#endif
#if PY_VERSION_HEX >= 0x030D0000
  sizes[CONTAINS_OP] = 1;
  sizes[JUMP_BACKWARD] = 1;
  sizes[TO_BOOL] = 3;
  sizes[POP_JUMP_IF_TRUE] = 1;
  sizes[POP_JUMP_IF_FALSE] = 1;
  sizes[POP_JUMP_IF_NONE] = 1;
  sizes[POP_JUMP_IF_NOT_NONE] = 1;
#endif
  return sizes;
}
inline constexpr std::array<std::uint8_t, 256> kCacheSizes = make_cache_sizes();

}  // namespace tatara::capture::vm
