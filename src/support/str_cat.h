// Strings from parts, without streams' locale and without std::format (missing in GCC 12).
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace tatara {

/// Appends the text of one part: strings, characters, bool ("true"), integers, shortest round-trip floating point,
/// enums (their number) and anything with a `std::string str() const`.
template <typename T>
void str_append(std::string& out, const T& part) {
  using D = std::remove_cvref_t<T>;
  if constexpr (std::is_same_v<D, bool>) {
    out += part ? "true" : "false";
  } else if constexpr (std::is_same_v<D, char>) {
    out += part;
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    out += std::string_view(part);
  } else if constexpr (std::is_enum_v<D>) {
    str_append(out, static_cast<long long>(part));
  } else if constexpr (std::is_arithmetic_v<D>) {
    char buffer[64];
    const auto end = std::to_chars(buffer, buffer + sizeof(buffer), part).ptr;
    out.append(buffer, end);
  } else {
    out += part.str();
  }
}

template <typename... Parts>
std::string str_cat(const Parts&... parts) {
  std::string out;
  (str_append(out, parts), ...);
  return out;
}

/// The items' texts with `separator` between them; `text` turns an item into something that str_append takes.
template <typename Range, typename Text>
std::string str_join(const Range& range, std::string_view separator, Text&& text) {
  std::string out;
  bool first = true;
  for (const auto& item : range) {
    if (!first) out += separator;
    first = false;
    str_append(out, text(item));
  }
  return out;
}

template <typename Range>
std::string str_join(const Range& range, std::string_view separator = ", ") {
  return str_join(range, separator, [](const auto& item) -> const auto& { return item; });
}

inline bool starts_with(std::string_view text, std::string_view prefix) { return text.starts_with(prefix); }

/// Without blanks, tabs and line ends on both sides.
inline std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace tatara
