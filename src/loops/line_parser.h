// Parts of a line of the loop IR's text, for the parser of kernels.
#pragma once

#include <limits>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "loops/kernel.h"
#include "loops/parser_text.h"
#include "support/error.h"
#include "support/str_cat.h"

namespace tatara::loops {

class LineParser {
 protected:
  explicit LineParser(std::string_view text) : lines_(lines_of(text)) { kernel_.ctx = std::make_shared<ExprContext>(); }

  [[noreturn]] void fail(std::string_view what) const {
    const std::string_view where = at_ < lines_.size() ? lines_[at_] : "the end";
    throw InvalidArgument(str_cat("loop text, line ", at_ + 1, " (", where, "): ", what));
  }
  std::string_view line() const {
    if (at_ >= lines_.size()) fail("unexpected end");
    return lines_[at_];
  }

  DType dtype(std::string_view text) const {
    const auto found = parse_dtype(trimmed(text));
    if (!found) fail(str_cat("no dtype ", text));
    return *found;
  }

  int64_t integer(std::string_view text) const {
    const auto value = whole_number<int64_t>(text);
    if (!value) fail(str_cat("not an integer: ", text));
    return *value;
  }

  double real(std::string_view text) const {
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
    const auto value = whole_number<double>(text);
    if (!value) fail(str_cat("not a number: ", text));
    return *value;
  }

  Expr expr(std::string_view text) const {
    try {
      return kernel_.ctx->parse(trimmed(text));
    } catch (const InvalidArgument& e) {
      fail(e.what());
    }
  }

  ScalarId value(std::string_view text) {
    text = trimmed(text);
    if (text == "none") return kNoScalar;
    if (!take(text, "%")) fail(str_cat("not a scalar: ", text));
    const int64_t id = integer(text);
    if (id < 0 || id > 1'000'000) fail("a scalar out of range");
    if (static_cast<size_t>(id) >= kernel_.scalar_types.size()) {
      kernel_.scalar_types.resize(static_cast<size_t>(id) + 1, DType::kFloat32);
    }
    return static_cast<ScalarId>(id);
  }

  ScalarId typed(std::string_view text) {
    const auto name = take_until(text, ":");
    if (!name) fail("a scalar without type");
    const ScalarId id = value(*name);
    kernel_.scalar_types[static_cast<size_t>(id)] = dtype(text);
    return id;
  }

  int buffer(std::string_view& text) const {
    if (!take(text, "b")) fail("no buffer");
    const auto number = take_until(text, "[");
    if (!number) fail("no index");
    const int64_t index = integer(*number);
    if (index < 0 || static_cast<size_t>(index) >= kernel_.buffers.size()) fail("no such buffer");
    return static_cast<int>(index);
  }

  /// What stands before the mark, in the text of such a statement.
  std::string_view part_of(std::string_view& text, std::string_view mark, std::string_view statement) const {
    const auto found = take_until(text, mark);
    if (!found) fail(str_cat("malformed ", statement));
    return *found;
  }

  int product_buffer(std::string_view name) {
    if (!take(name, "b")) fail("no buffer");
    const int64_t number = integer(name);
    if (number < 0 || static_cast<size_t>(number) >= kernel_.buffers.size()) fail("no such buffer");
    return static_cast<int>(number);
  }

  std::vector<std::string_view> lines_;
  size_t at_ = 0;
  Kernel kernel_;
};

}  // namespace tatara::loops
