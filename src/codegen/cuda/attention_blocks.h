// Which blocks of keys an attention needs: those where a mask by places, such as row >= key, leaves some score above -infinity. The
// mask is computed on intervals of rows and keys instead of elements.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>

#include "codegen/cuda/gpu_context.h"

namespace tatara::codegen {

class AttentionBlocks {
 public:
  AttentionBlocks(GpuContext& gpu, const loops::Attention& attention);
  /// Whether some block may be left out.
  bool can_skip() const { return can_skip_; }
  /// Whether a block is needed (i1), from its first and last rows and keys, and its number (i64).
  struct Ends {
    std::string first_row, last_row, first_key, last_key, number;
  };
  std::string needed(const Ends& ends);

 private:
  struct Bounds {
    std::string lo, hi;  // i64
  };
  struct Truth {
    std::string may_hold, may_fail;  // i1
  };

  const loops::Scalar* made(loops::ScalarId id) const;
  bool masks(loops::ScalarId id, int depth) const;
  bool knows(loops::ScalarId id, int depth) const;
  bool is_minus_infinity(loops::ScalarId id) const;
  /// Whether all of the block is -infinity (i1).
  std::string dead(loops::ScalarId id);
  Truth truth(loops::ScalarId id);
  Truth compared(const loops::Scalar& s);
  std::optional<Bounds> bounds(loops::ScalarId id);
  std::optional<Bounds> indexed(Expr e);
  bool is_linear(Expr e) const;

  std::string both(const std::string& a, const std::string& b);
  std::string either(const std::string& a, const std::string& b);
  std::string compare(const char* how, const std::string& a, const std::string& b);

  IrWriter& ir_;
  Scope& scope_;
  const loops::Kernel& kernel_;
  const loops::Attention& attention_;
  std::unordered_map<loops::ScalarId, const loops::Scalar*> made_;
  std::vector<Expr> looked_up_;
  Ends ends_;
  bool can_skip_ = false;
};

}  // namespace tatara::codegen
