#include "capture/host/package.h"

#include <string>

#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

constexpr const char* kModules[] = {
#define PACKAGE_MODULE(NAME, MODULE, FILE) MODULE,
#include "capture/host/package.def"
};

const char* module_of(PackageFunction function) {
  return kModules[static_cast<size_t>(package_entry(function).module)];
}

}  // namespace

std::optional<PackageFunction> package_named(PackageModule module, std::string_view name) {
  for (size_t i = 0; i < std::size(kPackage); ++i) {
    if (kPackage[i].module == module && kPackage[i].name == name) return static_cast<PackageFunction>(i);
  }
  return {};
}

Ref find_package_function(PackageFunction function) {
  const Ref module = Ref::steal(PyImport_ImportModule(module_of(function)));
  if (!module) return {};
  return attr(module.get(), package_entry(function).name.data());  // a literal: it ends in a null
}

Ref package_function(PackageFunction function) {
  Ref found = find_package_function(function);
  if (!found) {
    forget_error();
    throw InternalError(str_cat(module_of(function), " cannot be imported"));
  }
  return found;
}

}  // namespace tatara::capture
