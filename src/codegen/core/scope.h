// Maps the scalars, buffers and index symbols of a kernel to registers, and emits index expressions.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/text/ir_writer.h"
#include "loops/kernel.h"

namespace tatara::codegen {

/// How an index changes from lane to lane.
enum class Stride : uint8_t { kUniform, kUnit, kReversed, kStrided, kGather };

class Scope {
 public:
  Scope(const loops::Kernel& kernel, IrWriter& ir) : kernel_(kernel), ir_(ir), regs_(kernel.scalar_types.size()) {}

  // -- Scalars --

  const Reg& reg(loops::ScalarId id) const { return regs_[static_cast<size_t>(id)]; }
  void set(loops::ScalarId id, Reg value) { regs_[static_cast<size_t>(id)] = std::move(value); }
  DType dtype(loops::ScalarId id) const { return kernel_.scalar_types[static_cast<size_t>(id)]; }
  /// Records that a scalar is a known floating constant.
  void set_constant(loops::ScalarId id, double value) { constants_[id] = value; }
  std::optional<double> constant(loops::ScalarId id) const;

  // -- Buffers --

  const loops::BufferArg& buffer(int number) const { return kernel_.buffers[static_cast<size_t>(number)]; }
  /// The base pointer of the next buffer; for kind kValue, its value.
  void add_base(std::string text) { bases_.push_back(std::move(text)); }
  const std::string& base(int number) const { return bases_[static_cast<size_t>(number)]; }

  // -- Index symbols and expressions --

  void bind(Expr symbol, std::string text, bool vec = false) { symbols_[symbol] = {std::move(text), vec}; }
  /// An index as i64 for the first lane, and as a vector for all lanes.
  std::string index(Expr e) { return expression(e, false); }
  std::string index_vector(Expr e);
  /// Whether the value differs between lanes.
  bool varies(Expr e) const;
  Stride stride_of(Expr e) const;

  // -- The current vector loop --

  /// Starts a vector loop over `var`, `lanes` iterations at a time.
  void enter_lanes(Expr var, int lanes);
  void leave_lanes();
  Expr vector_var() const { return vector_var_; }
  /// The lane mask of the current pass (a vector of i1); "" for all lanes.
  void set_mask(std::string mask) { mask_ = std::move(mask); }
  const std::string& mask() const { return mask_; }

 private:
  /// Whether all lanes of a pass, which begins at a multiple of their number, have one quotient (the group that they lie in).
  bool same_quotient(Expr e) const;
  std::string expression(Expr e, bool vec);
  std::string symbol(Expr e, bool vec);
  std::string floor_division(Expr e, bool vec);
  std::string operand(Expr e, bool vec) { return vec ? index_vector(e) : expression(e, false); }
  std::string fold(const char* op, Expr e, bool vec);

  const loops::Kernel& kernel_;
  IrWriter& ir_;
  std::vector<Reg> regs_;
  std::vector<std::string> bases_;
  std::unordered_map<loops::ScalarId, double> constants_;
  std::unordered_map<Expr, Reg, ExprHash> symbols_;
  Expr vector_var_;
  std::string mask_;
};

}  // namespace tatara::codegen
