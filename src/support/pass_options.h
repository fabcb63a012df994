// What every pass is told.
#pragma once

#include <string>
#include <string_view>

#include "support/options.h"

namespace tatara {

struct PassOptions {
  std::string disabled;  ///< the option `disable`
  bool verify = false;
  /// Multiprocessors of a GPU that has kernels of ours for products; else 0.
  int product_processors = 0;
  bool float32_products = false;  ///< with them, those of float32 too: the host is not told to round more
  /// Whether products of few rows with a weight as it is are faster as loops of ours than the host's (option `matmul`).
  bool thin_weights = false;
  /// Whether products of ours widen bfloat16 and int8 as they read them, and whether the host's of bfloat16 are slower than these.
  bool wide_products = false, slow_bfloat16 = false;
  int vector_bytes = 0;  ///< of a CPU's registers; 0: no products as loops of ours
  /// A plan of a training stage: values that go from forward to backward lie as in eager.
  bool of_stage = false;

  /// Whether the pass is to be skipped. InternalError for names that are not in the table of options.
  bool skips(std::string_view pass) const { return lists_pass(disabled, pass); }
  static PassOptions resolve(const OptionOverrides& own = {}) {
    return {option_text(Option::kDisable, own), option_bool(Option::kVerify, own), 0};
  }
};

}  // namespace tatara
