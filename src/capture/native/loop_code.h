// The bytecode of loops, as far as it is looked at without being read. Places are in code units.
#pragma once

#include <optional>
#include <vector>

#include "capture/python/py.h"

namespace tatara::capture::native {

/// What is known of the code of one instruction.
struct Instruction {
  int opcode = 0, oparg = 0;
  int at = 0, next = 0;  // of its first prefix, and behind its caches
};
Instruction instruction_at(PyCodeObject* code, int at);
/// Where the loop of a FOR_ITER goes on when its iterator is at its end.
int exit_of_loop(const Instruction& head);
/// Of a conditional jump: where it goes, and for which value of its condition.
struct Branch {
  int target = 0;
  bool when = false;
  bool keeps = false;  // where it jumps, the condition stays on the stack
};
std::optional<Branch> branch_of(const Instruction& i);
/// The places where the code may go on; none: it returns or raises.
std::vector<int> next_places(PyCodeObject* code, int at);
/// Whether code that begins at this place may read the local before it assigns it.
bool is_read_behind(PyCodeObject* code, int place, int local);
/// The locals that an instruction assigns.
std::vector<int> assigned_by(const Instruction& i);

}  // namespace tatara::capture::native
