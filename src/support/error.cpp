#include "support/error.h"

#include <utility>

namespace tatara {
namespace {

std::string with_location(const std::string& message, const UserLocation& location) {
  return location.known() ? str_cat(message, " (at ", location.str(), ")") : message;
}

}  // namespace

std::string UserLocation::str() const {
  if (!known()) return {};
  std::string out = file;
  if (line > 0) str_append(out, str_cat(":", line));
  if (!function.empty()) str_append(out, str_cat(" in ", function));
  return out;
}

Error::Error(std::string message, UserLocation location)
    : std::runtime_error(with_location(message, location)),
      message_(std::move(message)),
      location_(std::move(location)) {}

void Error::rethrow_at(UserLocation location) const { throw Error(message_, location_or(std::move(location))); }
void InvalidArgument::rethrow_at(UserLocation location) const {
  throw InvalidArgument(message(), location_or(std::move(location)));
}
void Unsupported::rethrow_at(UserLocation location) const {
  throw Unsupported(message(), location_or(std::move(location)));
}
void SeveralDevices::rethrow_at(UserLocation location) const {
  throw SeveralDevices(message(), location_or(std::move(location)));
}
void CompilationError::rethrow_at(UserLocation location) const {
  throw CompilationError(message(), location_or(std::move(location)));
}
void InternalError::rethrow_at(UserLocation location) const {
  throw InternalError(message(), location_or(std::move(location)));
}

namespace detail {

void check_failed(const char* condition, const char* file, int line, const std::string& message) {
  std::string_view short_file = file;
  const size_t src = short_file.rfind("src/");
  if (src != std::string_view::npos) short_file.remove_prefix(src);
  std::string text = str_cat("internal error at ", short_file, ":", line, ": ", condition);
  if (!message.empty()) str_append(text, str_cat(": ", message));
  throw InternalError(std::move(text));
}

}  // namespace detail
}  // namespace tatara
