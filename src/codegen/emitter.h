// Loop IR to LLVM IR text: the emitter's state and its parts (memory and loops in emitter.cpp, scalars in
// emitter_scalar.cpp; elementary functions come from math_table.h).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codegen/emit_cpu.h"
#include "loops/kernel.h"

namespace tatara::codegen {

/// A scalar of the kernel in LLVM: a register or constant, one for each lane when `vec`.
struct Reg {
  std::string text;
  bool vec = false;
};

class Emitter {
 public:
  Emitter(const loops::Kernel& kernel, const CpuTarget& target, std::string_view symbol);
  std::string run();

 private:
  // -- text --
  std::string fresh() { return "%v" + std::to_string(next_++); }
  std::string label() { return "L" + std::to_string(next_++); }
  void line(const std::string& text) { out_ += "  " + text + "\n"; }
  std::string assign(const std::string& text);
  void start_block(const std::string& name);
  std::string vec_type(const std::string& scalar) const { return "<" + std::to_string(lanes_) + " x " + scalar + ">"; }
  std::string type_of(const std::string& scalar, bool vec) const { return vec ? vec_type(scalar) : scalar; }
  std::string splat(const std::string& scalar_type, const std::string& text);
  std::string as_vec(const std::string& scalar_type, const Reg& reg) {
    return reg.vec ? reg.text : splat(scalar_type, reg.text);
  }
  void declare(const std::string& text) { declarations_.insert(text); }

  // -- indices --
  bool varies(Expr e) const;
  std::string index(Expr e);         // i64 in lane 0
  std::string index_vector(Expr e);  // i64 per lane
  std::string index_expr(Expr e, bool vec);
  struct Stride {
    enum class Kind : uint8_t { kUniform, kUnit, kReversed, kStrided, kGather } kind = Kind::kUniform;
  };
  Stride stride_of(Expr e) const;

  // -- statements --
  void block(const loops::Block& block);
  void statement(const loops::Let& let);
  void statement(const loops::Load& load);
  void statement(const loops::Store& store);
  void statement(const loops::IndexValue& index);
  void statement(const loops::If& branch);
  void statement(const loops::For& loop);
  void parallel(const loops::For& loop);
  void serial(const loops::For& loop, const std::string& begin, const std::string& end);
  void vector(const loops::For& loop);
  /// A counted loop from begin to end by step with carried registers; body() reads `carried` and replaces them.
  template <typename Body>
  void counted(const std::string& begin, const std::string& end, const std::string& step,
               const std::vector<std::string>& types, std::vector<std::string>& carried, Body&& body);
  void vector_pass(const loops::For& loop, const std::string& base, const std::string& mask,
                   std::vector<std::string>& carried);
  std::string identity(loops::Combine combine, DType dtype) const;
  std::string combine(loops::Combine combine, DType dtype, const Reg& a, const Reg& b, bool vec);
  void reduce_lanes(const loops::For& loop, std::vector<std::string>& carried);
  int choose_lanes(const loops::For& loop) const;
  void widest(const loops::Block& block, int& bytes) const;

  // -- memory --
  std::string memory_type(DType dtype) const;
  std::string address(int buffer, const std::string& index);
  std::string from_memory(DType dtype, const std::string& text, bool vec);
  std::string to_memory(DType dtype, const std::string& text, bool vec);
  std::string lane_mask(loops::ScalarId mask);  // i1 vector of lanes that count, "" for all
  std::string vector_load(const loops::Load& load, const std::string& mask);

  // -- scalars --
  Reg scalar(const loops::Scalar& s);
  Reg constant(const loops::Scalar& s);
  Reg cast(DType from, DType to, const Reg& x);
  Reg arithmetic(const loops::Scalar& s, std::span<const Reg> v, bool vec);
  Reg comparison(const loops::Scalar& s, std::span<const Reg> v, bool vec);
  Reg function(loops::ScalarOp op, DType dtype, std::span<const Reg> v, bool vec);
  std::string binary(const char* op, const std::string& type, const std::string& a, const std::string& b);
  std::string call(const std::string& name, const std::string& result, const std::string& args);
  std::string intrinsic(const char* name, DType dtype, bool vec, std::span<const std::string> args);
  std::string per_lane(const std::string& function, DType dtype, std::span<const Reg> v, bool vec);
  const Reg& reg(loops::ScalarId id) const { return regs_[static_cast<size_t>(id)]; }
  DType dtype(loops::ScalarId id) const { return kernel_.scalar_types[static_cast<size_t>(id)]; }
  void set(loops::ScalarId id, Reg value) { regs_[static_cast<size_t>(id)] = std::move(value); }

  /// A function of the math table, if it has this one.
  bool table_function(loops::ScalarOp op, DType dtype, std::span<const Reg> v, bool vec, std::string& result);
  std::string select(const std::string& condition, const std::string& type, const std::string& a, const std::string& b,
                     bool vec);

  const loops::Kernel& kernel_;
  const CpuTarget& target_;
  std::string symbol_;
  std::string out_;
  std::string current_block_ = "entry";
  int next_ = 0;
  int lanes_ = 1;
  int site_ = 0;
  std::vector<Reg> regs_;
  std::vector<std::string> bases_;
  std::unordered_map<Expr, Reg, ExprHash> symbols_;
  Expr vector_var_;
  std::string vector_mask_;  // lanes of the present pass that count; "" for all
  std::unordered_set<std::string> declarations_;
};

std::string llvm_type(DType dtype);
std::string float_bits(double value, DType dtype);

}  // namespace tatara::codegen
