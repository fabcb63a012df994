// Errors that the package raises, and the places in the program that they name.
#pragma once

#include <exception>
#include <string>

#include "capture/python/py.h"

namespace tatara::capture {

/// Why a graph ended, or was not made, and where.
struct BreakInfo {
  std::string reason;
  std::string file;
  std::string function;
  int line = 0;
};

/// Sets the exception of the package that stands for `error`.
void raise_error(const std::exception& error);
/// Sets tatara.Unsupported with the reason and the user's line.
void raise_unsupported(const BreakInfo& why);
/// File, line and function of an instruction; no reason yet.
BreakInfo place_of(PyCodeObject* code, int offset);
void set_unsupported_type(PyObject* type);

}  // namespace tatara::capture
