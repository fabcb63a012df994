#include "transforms/pipeline.h"

#include <algorithm>

#include "ops/core/parse.h"
#include "support/made_once.h"
#include "transforms/autodiff.h"
#include "transforms/expand.h"
#include "transforms/passes.h"
#include "transforms/recompute.h"

namespace tatara {

const std::vector<PassInfo>& all_passes() {
  using Phase = PassInfo::Phase;
  return made_once([] {
    return std::vector<PassInfo>{
        {"copy_turns", Phase::kCapture, "turns of loops that would be traced as those before are not traced"},
        {"expand_transforms", Phase::kCapture, "gradients, tangents and batches inside of the graph written out"},
        {"expand_batches", Phase::kCapture, "one batch of it"},
        {"draw_ahead", Phase::kCapture, "random numbers of a loop's turns drawn before it, on CPUs"},
        {"join_writes", Phase::kCapture, "the rows that a loop writes to a tensor as one stack, on CPUs"},
        {"roll_loops", Phase::kCapture, "equal turns of loops as one node, on CPUs"},
        {"differentiable_form", Phase::kTraining, "operators without derivatives written out where gradients flow"},
        {"softmax_products", Phase::kTraining,
         "a softmax and the product behind it as one node, which keeps a number for each row, on GPUs"},
        {"generator_states", Phase::kTraining, "masks that checkpoints draw again keep the state that they came from"},
        {"rematerialize", Phase::kTraining, "values of checkpoints computed again for gradients"},
        {"expand_softmax", Phase::kTraining, "operators of which a cut may save less than their results"},
        {"canonicalize", Phase::kLowering, "constants folded, casts and views without effect removed"},
        {"fuse_attention", Phase::kLowering, "two products with a softmax between them in one kernel, on GPUs"},
        {"attention_gradients", Phase::kLowering,
         "products by gradients of scores in kernels that compute these, on GPUs"},
        {"split_biases", Phase::kLowering, "biases of convolutions as sums that fuse, on GPUs"},
        {"channels_last", Phase::kLowering, "convolutions on channels-last operands where that pays"},
        {"decompose", Phase::kLowering, "operators written out as primitives and calls of the host"},
        {"thin_products", Phase::kLowering, "products of a computed matrix with few rows as reductions"},
        {"cpu_products", Phase::kLowering, "products as loops that fuse, on CPUs"},
        {"own_products", Phase::kLowering, "float32 products by the tensor cores, on GPUs"},
        {"join_biases", Phase::kLowering, "biases of linear layers as part of the host's product, on GPUs"},
        {"align_matmuls", Phase::kLowering, "products with rows of an odd length, on GPUs"},
        {"align_attention_masks", Phase::kLowering, "masks of attention with contiguous rows, on GPUs"},
        {"cse", Phase::kLowering, "common subexpressions"},
        {"sum_parts", Phase::kLowering, "gradients of parts that don't meet are one tensor"},
        {"read_parts", Phase::kLowering,
         "reads of what was written in part, as reads of what was written or was there"},
        {"write_parts", Phase::kLowering, "writes to a part of an input store that part alone"},
        {"online_softmax", Phase::kLowering, "maximum and sum of exponentials in one reduction, on GPUs"},
        {"dce", Phase::kLowering, "values that nothing uses removed"},
        {"short_reductions", Phase::kSchedule, "reductions of a few elements as expressions"},
        {"fusion", Phase::kSchedule, "several operators in one kernel"},
        {"delays", Phase::kSchedule, "steps moved to where their results are needed, for memory"},
        {"grouped_launches", Phase::kSchedule, "equal launches as one, on GPUs"},
    };
  });
}

const std::vector<GraphPass>& lowering_passes() {
  // Order matters: decompositions leave casts and identities behind that canonicalize removes, and equal subexpressions are
  // easiest to see after it.
  return made_once([] {
    return std::vector<GraphPass>{
        {"canonicalize", canonicalize},
        {"fuse_attention", fuse_attention},
        {"attention_gradients", attention_gradients},
        {"split_biases", split_biases},
        {"channels_last", channels_last},
        {"decompose", decompose},
        {"canonicalize", canonicalize},
        {"thin_products", thin_products},
        {"cpu_products", cpu_products},
        {"own_products", own_products},
        {"join_biases", join_biases},
        {"align_matmuls", align_matmuls},
        {"align_attention_masks", align_attention_masks},
        {"cse", eliminate_common_subexpressions},
        {"sum_parts", sum_parts},
        {"read_parts", read_parts},
        {"write_parts", write_parts},
        {"online_softmax", online_softmax},
        {"dce", eliminate_dead_code},
    };
  });
}

const std::vector<GraphPass>& graph_passes() {
  return made_once([] {
    std::vector<GraphPass> all;
    for (const GraphPass& pass : lowering_passes()) {
      const auto same = [&pass](const GraphPass& other) { return other.name == pass.name; };
      if (std::none_of(all.begin(), all.end(), same)) all.push_back(pass);
    }
    all.push_back({"expand_transforms", [](const Graph& g, const PassOptions& o) { return expand_transforms(g, o); }});
    all.push_back(
        {"generator_states", [](const Graph& g, const PassOptions& o) { return with_generator_states(g, o); }});
    return all;
  });
}

const GraphPass* find_graph_pass(std::string_view name) {
  for (const GraphPass& pass : graph_passes()) {
    if (pass.name == name) return &pass;
  }
  return nullptr;
}

std::string graph_file(const Graph& graph) { return print_symbols(graph.ctx()) + print_graph(numbered(graph)); }

Graph run_passes(const Graph& graph, const PassOptions& options,
                 const std::function<void(std::string_view pass, const Graph&)>& after) {
  Graph now = graph;
  for (const GraphPass& pass : lowering_passes()) {
    now = pass.run(now, options);
    if (options.verify) verify_graph(now);
    if (after) after(pass.name, now);
  }
  return now;
}

}  // namespace tatara
