#include "capture/native/loop_code.h"

#include <opcode.h>

#include <cstdlib>
#include <set>
#include <vector>

#include "capture/vm/opcodes.h"
#include "support/error.h"

namespace tatara::capture::native {

namespace {

constexpr bool kSince312 = PY_VERSION_HEX >= 0x030C0000;

/// Where else than to the next instruction this one may go; -1: nowhere else.
int jump_of(const Instruction& i) {
  switch (i.opcode) {
    case JUMP_BACKWARD:
    case JUMP_BACKWARD_NO_INTERRUPT:
#if PY_VERSION_HEX < 0x030C0000
    case POP_JUMP_BACKWARD_IF_FALSE:
    case POP_JUMP_BACKWARD_IF_TRUE:
    case POP_JUMP_BACKWARD_IF_NONE:
    case POP_JUMP_BACKWARD_IF_NOT_NONE:
#endif
      return i.next - i.oparg;
    case JUMP_FORWARD:
    case FOR_ITER:
    case SEND:
#if PY_VERSION_HEX < 0x030C0000
    case POP_JUMP_FORWARD_IF_FALSE:
    case POP_JUMP_FORWARD_IF_TRUE:
    case POP_JUMP_FORWARD_IF_NONE:
    case POP_JUMP_FORWARD_IF_NOT_NONE:
    case JUMP_IF_FALSE_OR_POP:
    case JUMP_IF_TRUE_OR_POP:
#else
    case POP_JUMP_IF_FALSE:
    case POP_JUMP_IF_TRUE:
    case POP_JUMP_IF_NONE:
    case POP_JUMP_IF_NOT_NONE:
#endif
      return i.next + i.oparg;
    default: return -1;
  }
}

}  // namespace

std::optional<Branch> branch_of(const Instruction& i) {
  switch (i.opcode) {
#if PY_VERSION_HEX < 0x030C0000
    case POP_JUMP_BACKWARD_IF_FALSE: return Branch{i.next - i.oparg, false};
    case POP_JUMP_BACKWARD_IF_TRUE: return Branch{i.next - i.oparg, true};
    case POP_JUMP_FORWARD_IF_FALSE: return Branch{i.next + i.oparg, false};
    case POP_JUMP_FORWARD_IF_TRUE: return Branch{i.next + i.oparg, true};
    case JUMP_IF_FALSE_OR_POP: return Branch{i.next + i.oparg, false, true};
    case JUMP_IF_TRUE_OR_POP: return Branch{i.next + i.oparg, true, true};
#else
    case POP_JUMP_IF_FALSE: return Branch{i.next + i.oparg, false};
    case POP_JUMP_IF_TRUE: return Branch{i.next + i.oparg, true};
#endif
    default: return std::nullopt;
  }
}

namespace {

bool goes_on(const Instruction& i) {
  switch (i.opcode) {
    case JUMP_BACKWARD:
    case JUMP_BACKWARD_NO_INTERRUPT:
    case JUMP_FORWARD:
    case RETURN_VALUE:
#if PY_VERSION_HEX >= 0x030C0000
    case RETURN_CONST:
#endif
    case RAISE_VARARGS:
    case RERAISE: return false;
    default: return true;
  }
}

/// 1: the instruction reads the local; -1: it assigns it; 0: neither.
int use_of(const Instruction& i, int local) {
  switch (i.opcode) {
    case LOAD_FAST:
    case DELETE_FAST:
#if PY_VERSION_HEX >= 0x030C0000
    case LOAD_FAST_CHECK:
    case LOAD_FAST_AND_CLEAR:
#endif
      return i.oparg == local ? 1 : 0;
    case STORE_FAST: return i.oparg == local ? -1 : 0;
#if PY_VERSION_HEX >= 0x030D0000
    case LOAD_FAST_LOAD_FAST: return (i.oparg >> 4) == local || (i.oparg & 15) == local ? 1 : 0;
    case STORE_FAST_LOAD_FAST: return (i.oparg >> 4) == local ? -1 : (i.oparg & 15) == local ? 1 : 0;
    case STORE_FAST_STORE_FAST: return (i.oparg >> 4) == local || (i.oparg & 15) == local ? -1 : 0;
#endif
    default: return 0;
  }
}

}  // namespace

Instruction instruction_at(PyCodeObject* code, int at) {
  const Ref bytes = Ref::steal(PyCode_GetCode(code));  // which the code keeps
  if (!bytes) throw Unsupported("code without bytes");
  const auto* words = reinterpret_cast<const uint16_t*>(PyBytes_AS_STRING(bytes.get()));
  Instruction i;
  i.at = at;
  int place = at;
  i.opcode = words[place] & 255;
  i.oparg = words[place] >> 8;
  while (i.opcode == EXTENDED_ARG) {
    ++place;
    i.opcode = words[place] & 255;
    i.oparg = (i.oparg << 8) | (words[place] >> 8);
  }
  i.next = place + 1 + vm::kCacheSizes[static_cast<size_t>(i.opcode)];
  return i;
}

int exit_of_loop(const Instruction& head) {
  constexpr int kEnd = PY_VERSION_HEX >= 0x030D0000 ? 2 : kSince312 ? 1 : 0;  // END_FOR, and its POP_TOP in 3.13
  return head.next + head.oparg + kEnd;
}

std::vector<int> next_places(PyCodeObject* code, int at) {
  const Instruction i = instruction_at(code, at);
  if (i.opcode == FOR_ITER) return {i.next, exit_of_loop(i)};
  std::vector<int> places;
  if (goes_on(i)) places.push_back(i.next);
  if (const int target = jump_of(i); target >= 0) places.push_back(target);
  return places;
}

std::vector<int> assigned_by(const Instruction& i) {
  switch (i.opcode) {
    case STORE_FAST: return {i.oparg};
#if PY_VERSION_HEX >= 0x030D0000
    case STORE_FAST_LOAD_FAST: return {i.oparg >> 4};
    case STORE_FAST_STORE_FAST: return {i.oparg >> 4, i.oparg & 15};
#endif
    default: return {};
  }
}

bool is_read_behind(PyCodeObject* code, int place, int local) {
  // Handlers come from anywhere, and variables may be asked for by their names.
  if (PyBytes_GET_SIZE(code->co_exceptiontable) > 0) return true;
  for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(code->co_names); ++n) {
    const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(code->co_names, n));
    for (const char* asks : {"locals", "vars"}) {
      if (name != nullptr && std::string(name) == asks) return true;
    }
  }
  std::set<int> seen;
  std::vector<int> todo = {place};
  while (!todo.empty()) {
    const int at = todo.back();
    todo.pop_back();
    if (!seen.insert(at).second) continue;
    const Instruction i = instruction_at(code, at);
    const int use = use_of(i, local);
    if (use > 0) return true;
    if (use < 0) continue;
    if (goes_on(i)) todo.push_back(i.next);
    if (const int target = jump_of(i); target >= 0) todo.push_back(target);
  }
  return false;
}

}  // namespace tatara::capture::native
