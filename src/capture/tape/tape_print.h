// The tape as text: for reports, logs, dumps and goldens. The same in every run: no addresses.
#pragma once

#include <string>
#include <vector>

#include "capture/tape/tape.h"

namespace tatara::capture {

/// A Python object as it may stand in a text. Runs no code of the program.
std::string value_text(PyObject* object);
/// "float32", from DLPack's numbers.
std::string dtype_text(uint8_t code, uint8_t bits);
/// "[4, s0]"
std::string sizes_text(const std::vector<Expr>& sizes);
std::string sizes_text(const std::vector<int64_t>& sizes);

/// "%0 = input 0: float32[4]": an input of the tape.
std::string input_text(const Tape& tape, int slot);
/// "%2 = mul(%0, 2.0): float32[4]   # model.py:12": one line for each call, more for one with a backward of the user's.
std::string node_text(const Tape& tape, const TapeNode& node);
std::string tape_text(const Tape& tape);

}  // namespace tatara::capture
