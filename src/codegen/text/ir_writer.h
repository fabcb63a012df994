// Writes the text of an LLVM IR function: lines, basic blocks, registers and the common instructions.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <unordered_set>

#include "codegen/text/types.h"

namespace tatara::codegen {

/// An LLVM register or constant; a vector with one element per lane when `vec`. A complex value has a second one, its
/// imaginary part.
struct Reg {
  std::string text;
  bool vec = false;
  std::string im = {};
};

/// The other top-level items of the module: declarations, constant tables, helper functions. A set, so each appears once.
using Declarations = std::unordered_set<std::string>;
/// Their text in alphabetical order, so that it is deterministic.
std::string text_of(const Declarations& declarations);

class IrWriter {
 public:
  explicit IrWriter(Declarations& declarations) : declarations_(declarations) {}

  // -- Lines and blocks --

  /// The name of a new register or label. One counter numbers both.
  std::string fresh() { return "%v" + std::to_string(next_++); }
  std::string label() { return "L" + std::to_string(next_++); }
  void line(const std::string& text) { text_ += "  " + text + "\n"; }
  /// Writes "%vN = INSTRUCTION" and returns "%vN".
  std::string assign(const std::string& instruction);
  void start_block(const std::string& name);
  /// Makes `name` the current block without writing its label, which is written later (see apart()).
  void continue_block(const std::string& name) { block_ = name; }
  /// The label of the current basic block. A phi needs it.
  const std::string& block() const { return block_; }
  void declare(const std::string& text) { declarations_.insert(text); }
  Declarations& declarations() { return declarations_; }
  /// Returns what `write` writes instead of adding it to the text; append() adds it later. A loop body is written first, since
  /// the phis in the loop header name registers of the body.
  std::string apart(const std::function<void()>& write);
  void append(const std::string& text) { text_ += text; }
  /// Returns the text and starts an empty function.
  std::string take();

  // -- Lanes --

  /// Vector width in elements; 1 outside of vector loops.
  int lanes() const { return lanes_; }
  void set_lanes(int lanes) { lanes_ = lanes; }
  /// Whether the target has an instruction that rounds to bfloat16.
  bool rounds_to_bfloat() const { return rounds_to_bfloat_; }
  void set_rounds_to_bfloat(bool has) { rounds_to_bfloat_ = has; }
  /// Whether the target has an instruction that makes a word of any bytes of two others (prmt): bytes are then words of four, where they can be.
  bool permutes_bytes() const { return permutes_bytes_; }
  void set_permutes_bytes(bool has) { permutes_bytes_ = has; }
  std::string vec_type(const std::string& scalar) const { return vector_of(lanes_, scalar); }
  std::string type_of(const std::string& scalar, bool vec) const { return vec ? vec_type(scalar) : scalar; }
  /// Broadcasts a scalar to all lanes.
  std::string splat(const std::string& scalar_type, const std::string& text);
  std::string as_vec(const std::string& scalar_type, const Reg& reg) {
    return reg.vec ? reg.text : splat(scalar_type, reg.text);
  }
  /// A shufflevector of two vectors with `lanes` elements each; `indices` count through `a`, then `b`.
  std::string shuffle(const std::string& element, int lanes, const std::string& a, const std::string& b,
                      std::span<const int> indices);

  // -- Instructions --

  std::string binary(const char* op, const std::string& type, const std::string& a, const std::string& b);
  std::string call(const std::string& function, const std::string& result, const std::string& arguments);
  /// `type` is the type of `a` and `b`. With `vec`, the condition is a vector of i1.
  std::string select(const std::string& condition, const std::string& type, const std::string& a, const std::string& b,
                     bool vec);
  /// The overload of "llvm.NAME" whose operands and result all have this type.
  std::string intrinsic(const char* name, DType dtype, bool vec, std::span<const std::string> arguments);
  /// Calls a scalar function once per lane.
  std::string per_lane(const std::string& function, DType dtype, std::span<const Reg> operands, bool vec);

  // -- Branches --

  void jump(const std::string& target) { line("br label %" + target); }
  void branch(const std::string& condition, const std::string& then, const std::string& otherwise) {
    line("br i1 " + condition + ", label %" + then + ", label %" + otherwise);
  }
  /// An if without else.
  void when(const std::string& condition, const std::function<void()>& body);

 private:
  Declarations& declarations_;
  std::string text_;
  std::string block_ = "entry";
  int next_ = 0;
  int lanes_ = 1;
  bool rounds_to_bfloat_ = false;
  bool permutes_bytes_ = false;
};

}  // namespace tatara::codegen
