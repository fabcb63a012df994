// runtime/base/history.h for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace tatara {

void bind_history(nanobind::module_& m);

}  // namespace tatara
