// Which of the host's fused kernels attention on a GPU would take: only the host knows.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace tatara {

/// A call of scaled_dot_product_attention with constant sizes whose operands want gradients.
struct AttentionCall {
  std::vector<TensorType> operands;  // query, key, value
  std::optional<TensorType> mask;
  double dropout = 0;
  bool causal = false;
  std::optional<double> scale;
  bool grouped = false;
};

struct FusedAttention {
  int kernel = 0;           // the host's number of it
  TensorType seed, offset;  // what the kernel returns of its random numbers
};

using ChooseFusedAttention = std::function<std::optional<FusedAttention>(ExprContext&, const AttentionCall&)>;
/// Installed by the bindings; without one attention on GPUs is composed of its parts where gradients flow.
void set_fused_attention_chooser(ChooseFusedAttention chooser);

}  // namespace tatara
