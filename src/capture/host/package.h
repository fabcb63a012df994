// The package's own Python code as the core calls it: package.def lists all of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "capture/python/py.h"

namespace tatara::capture {

enum class PackageModule : uint8_t {
#define PACKAGE_MODULE(NAME, ...) k##NAME,
#include "capture/host/package.def"
};

enum class PackageFunction : uint8_t {
#define PACKAGE_FUNCTION(MODULE, NAME, ...) k##NAME,
#define PACKAGE_STAND_IN(MODULE, NAME, ...) k##NAME,
#include "capture/host/package.def"
};

struct PackageEntry {
  PackageModule module;
  std::string_view name;
  int arguments = 0;      // that it is called with
  bool stand_in = false;  // with those of the function of torch's that it stands in for
};

inline constexpr PackageEntry kPackage[] = {
#define PACKAGE_FUNCTION(MODULE, NAME, FUNCTION, ARGUMENTS) {PackageModule::k##MODULE, FUNCTION, ARGUMENTS, false},
#define PACKAGE_STAND_IN(MODULE, NAME, FUNCTION) {PackageModule::k##MODULE, FUNCTION, 0, true},
#include "capture/host/package.def"
};

constexpr const PackageEntry& package_entry(PackageFunction function) {
  return kPackage[static_cast<size_t>(function)];
}

/// How the path of the module's file ends: /tatara/_api.py.
constexpr std::string_view package_file(PackageModule module) {
  constexpr std::string_view kFiles[] = {
#define PACKAGE_MODULE(NAME, MODULE, FILE) FILE,
#include "capture/host/package.def"
  };
  return kFiles[static_cast<size_t>(module)];
}

/// The function or stand-in of this name; nothing: the module has none that the core may call.
std::optional<PackageFunction> package_named(PackageModule module, std::string_view name);

/// Null with a Python error set.
Ref find_package_function(PackageFunction function);
/// Throws InternalError where it cannot be imported.
Ref package_function(PackageFunction function);

/// Calls it with Python objects. Null with a Python error set.
template <PackageFunction kFunction, typename... Objects>
  requires((std::is_convertible_v<Objects, PyObject*> && ...))
Ref call_package(Objects... objects) {
  static_assert(sizeof...(Objects) == package_entry(kFunction).arguments, "see package.def");
  const Ref function = find_package_function(kFunction);
  if (!function) return {};
  return Ref::steal(PyObject_CallFunctionObjArgs(function.get(), static_cast<PyObject*>(objects)..., nullptr));
}

}  // namespace tatara::capture
