// Python's warnings: most are shown once for each place, and Python notes that. What is noted is no effect in later calls.
#pragma once

#include "capture/python/py.h"

namespace tatara::capture {

/// A call of warnings.warn, as Python looks it up.
struct SaidWarning {
  Ref globals;  ///< of the place that the warning names; Python's notes are in there
  Ref text, category;
  int line = 0;

  Ref key() const;  ///< null with a Python error set
};

/// What the filters make of a warning.
enum class WarningAction : uint8_t {
  kIgnore,
  kOnce,   ///< shown, and noted
  kOther,  ///< shown each time, an error, or what this cannot tell
};
WarningAction warning_action(const SaidWarning& warning);

/// The filters as they are, a tuple. Null without an error: they are no list.
Ref warning_filters();
/// Whether a shown warning is written to sys.stderr by Python's own code, and nothing else happens.
bool shows_plainly();

/// A function in C of the globals, the key and either the filters that ignore the warning or None: whether it is not shown, and
/// a call of warnings.warn does nothing.
PyObject* is_said();

}  // namespace tatara::capture
