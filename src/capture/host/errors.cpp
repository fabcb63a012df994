#include "capture/host/errors.h"

#include <string_view>

#include "capture/host/package.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

PyObject* g_unsupported = nullptr;

}  // namespace

void raise_error(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  const std::string_view kind = ours != nullptr ? ours->kind() : "InternalError";
  const std::optional<PackageFunction> named = package_named(PackageModule::kErrors, kind);
  const Ref type = named ? find_package_function(*named) : Ref();
  if (!type) forget_error();
  const std::string_view what = error.what();
  // It may name a path, whose bytes need not be text.
  const Ref message = Ref::steal(PyUnicode_DecodeUTF8(what.data(), static_cast<Py_ssize_t>(what.size()), "replace"));
  if (message) PyErr_SetObject(type ? type.get() : PyExc_RuntimeError, message.get());
}

void set_unsupported_type(PyObject* type) { g_unsupported = Py_NewRef(type); }

void raise_unsupported(const BreakInfo& why) {
  std::string text = why.reason;
  if (!why.file.empty()) text += str_cat(" (", why.file, ":", why.line, " in ", why.function, ")");
  PyErr_SetString(g_unsupported != nullptr ? g_unsupported : PyExc_RuntimeError, text.c_str());
}

BreakInfo place_of(PyCodeObject* code, int offset) {
  BreakInfo place;
  place.file = text_of(code->co_filename);
  place.function = text_of(code->co_name);
  place.line = offset == 0 ? code->co_firstlineno : PyCode_Addr2Line(code, offset);
  return place;
}

}  // namespace tatara::capture
