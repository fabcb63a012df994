// What `tatara env` and `tatara cache` show.
#pragma once

#include <nanobind/nanobind.h>

namespace tatara {

void bind_environment(nanobind::module_& m);

}  // namespace tatara
