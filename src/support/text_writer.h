// Builds indented text: what every printer of the pipeline writes with.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "support/str_cat.h"

namespace tatara {

/// Lines with two blanks per level. Deterministic: no locale, no addresses.
class TextWriter {
 public:
  explicit TextWriter(int indent_width = 2) : width_(indent_width) {}

  /// One whole line from parts. An empty line gets no blanks.
  template <typename... Parts>
  TextWriter& line(const Parts&... parts) {
    if constexpr (sizeof...(parts) > 0) {
      begin_line();
      add(parts...);
    }
    return end_line();
  }

  /// A line in pieces: begin_line(), add(...), end_line().
  TextWriter& begin_line() {
    pending_indent_ = true;
    return *this;
  }
  template <typename... Parts>
  TextWriter& add(const Parts&... parts) {
    flush_indent();
    (str_append(text_, parts), ...);
    return *this;
  }
  TextWriter& end_line() {
    pending_indent_ = false;
    text_ += '\n';
    return *this;
  }

  void indent() { ++level_; }
  void dedent() {
    if (level_ > 0) --level_;
  }

  /// Opens a block for the life of the returned object.
  class Block {
   public:
    explicit Block(TextWriter& writer) : writer_(&writer) { writer_->indent(); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() { writer_->dedent(); }

   private:
    TextWriter* writer_;
  };
  [[nodiscard]] Block block() { return Block(*this); }

  const std::string& str() const& { return text_; }
  std::string str() && { return std::move(text_); }
  bool empty() const { return text_.empty(); }

 private:
  void flush_indent() {
    if (!pending_indent_) return;
    pending_indent_ = false;
    text_.append(static_cast<size_t>(level_ * width_), ' ');
  }

  std::string text_;
  int width_;
  int level_ = 0;
  bool pending_indent_ = false;
};

}  // namespace tatara
