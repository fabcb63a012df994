// Exceptions, one class per kind of failure, and checks of internal invariants.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "support/str_cat.h"

namespace tatara {

/// A line of the user's program, for messages. Empty file: unknown.
struct UserLocation {
  std::string file;
  int line = 0;
  std::string function;
  int call = -1;  // which of the calls that a trace recorded; -1: unknown

  bool known() const { return !file.empty(); }
  std::string str() const;  // "model.py:12 in forward"; "" when unknown
};

/// Base of everything that Tatara throws; `tatara.Error` in Python.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string message, UserLocation location = {});

  /// The message alone; what() has the user's line as well.
  const std::string& message() const { return message_; }
  const UserLocation& location() const { return location_; }
  /// The name of the exception's class in Python.
  virtual std::string_view kind() const { return "Error"; }
  /// Throws a copy of this error with the given location (kept when one is there already).
  [[noreturn]] virtual void rethrow_at(UserLocation location) const;

 protected:
  UserLocation location_or(UserLocation other) const { return location_.known() ? location_ : std::move(other); }

 private:
  std::string message_;
  UserLocation location_;
};

/// The user called the API wrongly; eager would refuse as well.
class InvalidArgument : public Error {
 public:
  using Error::Error;
  std::string_view kind() const override { return "InvalidArgument"; }
  [[noreturn]] void rethrow_at(UserLocation location) const override;
};

/// Something that Tatara does not do natively. Callers fall back to eager and keep the reason.
class Unsupported : public Error {
 public:
  using Error::Error;
  std::string_view kind() const override { return "Unsupported"; }
  [[noreturn]] void rethrow_at(UserLocation location) const override;
};

/// Values on several devices in what is for one.
class SeveralDevices : public Unsupported {
 public:
  using Unsupported::Unsupported;
  [[noreturn]] void rethrow_at(UserLocation location) const override;
};

/// A user's operator gave what its schema, or its kernel for tensors without data, says otherwise.
class BrokenSchema : public Unsupported {
 public:
  BrokenSchema(std::string op, const std::string& what)
      : Unsupported(str_cat("the operator ", op, " returned ", what)), op_(std::move(op)) {}
  const std::string& op() const { return op_; }

 private:
  std::string op_;
};

/// LLVM, a linker or a loader refused generated code, or the code on disk is damaged.
class CompilationError : public Error {
 public:
  using Error::Error;
  std::string_view kind() const override { return "CompilationError"; }
  [[noreturn]] void rethrow_at(UserLocation location) const override;
};

/// A broken invariant: a bug in Tatara.
class InternalError : public Error {
 public:
  using Error::Error;
  std::string_view kind() const override { return "InternalError"; }
  [[noreturn]] void rethrow_at(UserLocation location) const override;
};

namespace detail {
[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& message);
}  // namespace detail

}  // namespace tatara

/// Throws InternalError with the source line when `condition` is false. The rest is a message in parts:
/// TATARA_CHECK(a == b, "sizes ", a, " and ", b, " differ").
#define TATARA_CHECK(condition, ...)                                                                  \
  do {                                                                                                \
    if (!(condition)) [[unlikely]] {                                                                  \
      ::tatara::detail::check_failed(#condition, __FILE__, __LINE__, ::tatara::str_cat(__VA_ARGS__)); \
    }                                                                                                 \
  } while (false)

/// Marks code that cannot be reached, after a switch over a closed enum: TATARA_UNREACHABLE("DType ", int(dtype)).
#define TATARA_UNREACHABLE(...) \
  ::tatara::detail::check_failed("unreachable", __FILE__, __LINE__, ::tatara::str_cat(__VA_ARGS__))
