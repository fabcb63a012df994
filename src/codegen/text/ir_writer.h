// The text of a function in LLVM IR: lines, blocks, registers, and the instructions that every part of an emitter writes.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <unordered_set>

#include "codegen/text/types.h"

namespace tatara::codegen {

/// A value of the kernel in LLVM: a register or a constant, one for each lane when `vec`. Complex values have a second one,
/// their imaginary part.
struct Reg {
  std::string text;
  bool vec = false;
  std::string im = {};
};

/// What stands beside a kernel's function in its module: declarations, constant tables, functions. Each is written once.
using Declarations = std::unordered_set<std::string>;
/// One after the other, in alphabetical order.
std::string text_of(const Declarations& declarations);

class IrWriter {
 public:
  explicit IrWriter(Declarations& declarations) : declarations_(declarations) {}

  // -- Lines and blocks --

  /// A new register, a new label (both are numbered by one counter).
  std::string fresh() { return "%v" + std::to_string(next_++); }
  std::string label() { return "L" + std::to_string(next_++); }
  void line(const std::string& text) { text_ += "  " + text + "\n"; }
  /// A new register that holds what the instruction gives.
  std::string assign(const std::string& instruction);
  void start_block(const std::string& name);
  /// What follows is a part of a block whose label is written elsewhere.
  void continue_block(const std::string& name) { block_ = name; }
  /// The label of the block that is being written: phis name it.
  const std::string& block() const { return block_; }
  void declare(const std::string& text) { declarations_.insert(text); }
  Declarations& declarations() { return declarations_; }
  /// What `write` writes, kept out of the text: append() puts it in later. The body of a loop comes before its head in this
  /// way, since phis at the head name registers of the body.
  std::string apart(const std::function<void()>& write);
  void append(const std::string& text) { text_ += text; }
  /// All that was written. The next line is the first of another function.
  std::string take();

  // -- Lanes --

  /// Lanes of a vector; 1 outside of vector loops.
  int lanes() const { return lanes_; }
  void set_lanes(int lanes) { lanes_ = lanes; }
  std::string vec_type(const std::string& scalar) const { return vector_of(lanes_, scalar); }
  std::string type_of(const std::string& scalar, bool vec) const { return vec ? vec_type(scalar) : scalar; }
  /// A vector that has `text` in every lane.
  std::string splat(const std::string& scalar_type, const std::string& text);
  std::string as_vec(const std::string& scalar_type, const Reg& reg) {
    return reg.vec ? reg.text : splat(scalar_type, reg.text);
  }
  /// Lanes of two vectors of `lanes` elements, by their numbers among both.
  std::string shuffle(const std::string& element, int lanes, const std::string& a, const std::string& b,
                      std::span<const int> indices);

  // -- Instructions --

  std::string binary(const char* op, const std::string& type, const std::string& a, const std::string& b);
  std::string call(const std::string& function, const std::string& result, const std::string& arguments);
  /// `type` is that of the operands; with `vec` the condition has lanes.
  std::string select(const std::string& condition, const std::string& type, const std::string& a, const std::string& b,
                     bool vec);
  /// LLVM's own function "llvm.NAME" for the type of its operands, which it also returns.
  std::string intrinsic(const char* name, DType dtype, bool vec, std::span<const std::string> arguments);
  /// A function of C, lane by lane.
  std::string per_lane(const std::string& function, DType dtype, std::span<const Reg> operands, bool vec);

  // -- Branches --

  void jump(const std::string& target) { line("br label %" + target); }
  void branch(const std::string& condition, const std::string& then, const std::string& otherwise) {
    line("br i1 " + condition + ", label %" + then + ", label %" + otherwise);
  }
  /// `body` runs where the condition holds.
  void when(const std::string& condition, const std::function<void()>& body);

 private:
  Declarations& declarations_;
  std::string text_;
  std::string block_ = "entry";
  int next_ = 0;
  int lanes_ = 1;
};

}  // namespace tatara::codegen
