// Gradients of attention without scores in memory: before a graph is differentiated the softmax and the product behind it become one
// node, whose rule needs a number for each row; products by what the rule computes from scores become kernels of their own.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "ops/core/op_def.h"
#include "ops/reduce/softmax_source.h"
#include "transforms/attention_pattern.h"
#include "transforms/autodiff.h"
#include "transforms/passes.h"

namespace tatara {
namespace {

// ---- Before gradients --------------------------------------------------------------------------------------------------

/// Whether all of it lies in one region of the program, and is differentiated.
bool is_in_one_region(const Graph& g, const FoundAttention& found) {
  return std::all_of(found.inside.begin(), found.inside.end(), [&](ValueId v) {
    const Node& node = *g.producer(v);
    return node.region == found.second->region && !node.no_grad && node.closed == found.second->closed;
  });
}

}  // namespace

Graph softmax_products(const Graph& graph, const std::vector<bool>& inputs, const PassOptions& options) {
  if (options.product_processors == 0) return graph;
  return run_pass("softmax_products", graph, options, [&](const Graph& whole) {
    const Graph g = eliminate_dead_code(whole);  // whose readers do not count
    const std::vector<bool> needs = values_needing_grad(g, inputs);
    const AttentionFinder finder(g);
    std::map<NodeId, FoundAttention> at;
    std::vector<std::shared_ptr<const Region>> region_of(g.num_values());
    for (const Node& node : g.nodes()) {
      std::optional<FoundAttention> found = finder.find(node);
      const bool wanted = found && !node.no_grad && needs[static_cast<size_t>(found->scores)];
      if (!wanted || !is_in_one_region(g, *found) || region_of[static_cast<size_t>(found->scores)]) continue;
      const int depth = node.region ? node.region->depth + 1 : 1;
      const auto region = std::make_shared<const Region>(Region{node.region, depth, false});
      for (const ValueId v : found->inside) region_of[static_cast<size_t>(v)] = region;
      at.emplace(g.value(node.outputs[0]).producer, *found);
    }
    if (at.empty()) return g;
    GraphCopy copy(g);
    GraphBuilder b(copy.to());
    for (size_t i = 0; i < g.num_nodes(); ++i) {
      const Node& node = g.node(static_cast<NodeId>(i));
      const auto found = at.find(static_cast<NodeId>(i));
      if (found == at.end()) {
        copy.copy(node);
        const auto& region = region_of[static_cast<size_t>(node.outputs.at(0))];
        if (region) copy.to().node(copy.to().value(copy[node.outputs[0]]).producer).region = region;
        continue;
      }
      b.set_location(node.location);
      const ValueId value = copy[operand_at(node, 1)->value];
      const std::vector<ValueId> made = b.op_multi(
          "softmax_product", {TensorArg{copy[found->second.scores]}, TensorArg{value}, Scalar(found->second.zero)});
      copy.to().node(copy.to().value(made[0]).producer).take_marks(node);
      copy.set(node.outputs[0], made[0]);
    }
    return eliminate_dead_code(copy.finish());  // the softmax itself
  });
}

// ---- Kernels -----------------------------------------------------------------------------------------------------------

namespace {

/// A product by what is computed from scores.
struct SumOfScores {
  const Node* product;
  ValueId shares;            // the last value before views, casts and exchanged dims
  bool left;                 // the operand of the product that it is
  bool turned;               // rows of the sums are keys
  std::vector<ValueId> way;  // from the shares to the operand, without these
  ElementWalk walk;          // from the shares to products

  ValueId shared() const { return operand_at(*product, left ? 0 : 1)->value; }
  ValueId value() const { return operand_at(*product, left ? 1 : 0)->value; }
};

class SumFinder {
 public:
  explicit SumFinder(const Graph& g) : g_(g), uses_(g.use_counts()) {}

  /// All that fit, in the order of the graph.
  std::vector<SumOfScores> all() const {
    std::vector<SumOfScores> found;
    for (const Node& node : g_.nodes()) {
      if (!is_batched_product(node)) continue;
      for (const bool left : {true, false}) {
        if (std::optional<SumOfScores> one = find(node, left)) {
          found.push_back(std::move(*one));
          break;
        }
      }
    }
    // Those of one product stand or fall together: no score lies in memory, or all of them do.
    size_t before = 0;
    do {
      before = found.size();
      std::map<ValueId, int> reads = reads_inside(found);
      std::erase_if(found, [&](const SumOfScores& each) {
        return std::any_of(each.walk.dependent.begin(), each.walk.dependent.end(),
                           [&](ValueId v) { return reads[v] != uses_[static_cast<size_t>(v)]; });
      });
    } while (found.size() != before);
    return found;
  }

 private:
  std::optional<SumOfScores> find(const Node& product, bool left) const {
    SumOfScores found{&product, kNoValue, left, !left, {}, {}};
    ValueId v = found.shared();
    const Node* node = g_.producer(v);
    for (; node != nullptr; node = g_.producer(v)) {
      const bool turns = exchanges(g_, *node, -1);
      if (!turns && !keeps_elements(*node) && !is_cast(*node)) break;
      found.way.push_back(v);
      found.turned = found.turned != turns;
      v = operand_at(*node, 0)->value;
    }
    found.shares = v;
    const TensorType& type = g_.type(v);
    if (node == nullptr || !is_element(*node) || !has_known_sizes(type) || type.dim() < 3 || type.dim() > 4)
      return std::nullopt;
    if (type.device.kind != DeviceKind::kCuda || !follow(found) || !fits(found)) return std::nullopt;
    return found;
  }

  /// Zeros are made like what they stand for.
  static bool is_element(const Node& node) {
    const bool one = node.op->kind == OpKind::kPointwise || node.op->kind == OpKind::kCreation;
    return one && node.outputs.size() == 1;
  }

  /// Whether shares are computed element by element from one or two products, by way of a softmax's share.
  bool follow(SumOfScores& found) const {
    const std::vector<Expr>& sizes = g_.type(found.shares).sizes;
    found.walk = walk_to_products(g_, found.shares, true, [&](const Node& node, bool large) {
      return (is_element(node) && g_.type(node.outputs[0]).sizes == sizes) ||
             ((keeps_elements(node) || is_cast(node)) && large);
    });
    const bool softened = std::any_of(found.walk.inside.begin(), found.walk.inside.end(),
                                      [&](ValueId v) { return is_softmax_share(*g_.producer(v)); });
    return softened && !found.walk.products.empty() && found.walk.products.size() <= 2;
  }

  /// How often values are read by what all kernels compute.
  std::map<ValueId, int> reads_inside(const std::vector<SumOfScores>& found) const {
    std::map<ValueId, int> reads;
    std::vector<bool> counted(g_.num_values(), false);
    const auto count = [&](ValueId v) {
      if (counted[static_cast<size_t>(v)] || is_batched_product(*g_.producer(v))) return;
      counted[static_cast<size_t>(v)] = true;
      for_each_operand(*g_.producer(v), [&](ValueId operand) { ++reads[operand]; });
    };
    for (const SumOfScores& each : found) {
      for (const ValueId v : each.walk.inside) count(v);
      for (const ValueId v : each.way) count(v);
      ++reads[each.shared()];
    }
    return reads;
  }

  bool fits(const SumOfScores& found) const {
    const auto half_of = [&](const Node& node, size_t place) {
      return g_.type(before_cast(g_, operand_at(node, place)->value)).dtype;
    };
    const DType dtype = half_of(*found.product, found.left ? 1 : 0);
    const TensorType& out = g_.type(found.product->outputs[0]);
    if (!is_half(dtype) || !has_known_sizes(out) || !fits_attention(out.sizes[found.left ? 2 : 1])) return false;
    for (const Node* each : found.walk.products) {
      const TensorType &query = g_.type(operand_at(*each, 0)->value), &key = g_.type(operand_at(*each, 1)->value);
      if (half_of(*each, 0) != dtype || half_of(*each, 1) != dtype) return false;
      if (!has_known_sizes(query) || !has_known_sizes(key) || !fits_attention(query.sizes[2])) return false;
    }
    return std::all_of(found.walk.dependent.begin(), found.walk.dependent.end(), [&](ValueId v) {
      const DType own = g_.type(v).dtype;
      return own == DType::kFloat32 || is_half(own);
    });
  }

  const Graph& g_;
  const std::vector<int> uses_;
};

/// The scores that the first share found is of.
ValueId hidden_scores(const Graph& g, const SumOfScores& found) {
  for (const ValueId v : found.walk.inside) {
    const Node& node = *g.producer(v);
    if (is_softmax_share(node)) return operand_at(node, 0)->value;
  }
  return found.shares;
}

/// Elements of a row of two sums that threads have registers for: wider ones are faster apart.
constexpr int64_t kWidestTogether = 128;

/// Copies a graph with kernels in place of products by shares.
class SumsInKernels {
 public:
  SumsInKernels(const Graph& g, const std::vector<SumOfScores>& found) : g_(g), copy_(g), b_(copy_.to()) {
    const std::vector<int> uses = g.use_counts();
    for (size_t i = 0; i < found.size(); ++i) {
      for (const Node* product : found[i].walk.products) scores_.emplace(product, &found[i]);
      if (kernel_of_.contains(found[i].product)) continue;
      std::vector<const SumOfScores*> kernel{&found[i]};
      for (size_t k = i + 1; k < found.size() && kernel.size() == 1; ++k) {
        if (fits_together(found[i], found[k])) kernel.push_back(&found[k]);
      }
      for (const SumOfScores* each : kernel) kernel_of_.emplace(each->product, kernel);
    }
    // A product of a half type that is read as float32 alone need not be rounded, but where the softmax read it so.
    for (const auto& [product, each] : scores_) {
      const ValueId v = product->outputs[0];
      if (is_below(*each, hidden_scores(g, *each), v)) continue;
      const Node* reader = uses[static_cast<size_t>(v)] == 1 ? only_reader(*each, v) : nullptr;
      if (reader != nullptr && is_cast(*reader) && g.type(reader->outputs[0]).dtype == DType::kFloat32)
        unrounded_.emplace(reader, product);
    }
  }

  Graph run() {
    std::vector<const Node*> later;  // what waits for a sum that is made with another one
    const auto is_ready = [&](const Node& node) {
      bool ready = true;
      for_each_operand(node, [&](ValueId v) { ready = ready && copy_[v] != kNoValue; });
      return ready;
    };
    for (const Node& node : g_.nodes()) {
      if (copy_[node.outputs.at(0)] != kNoValue) continue;  // made with another one
      if (!is_ready(node) || !place(node)) {
        later.push_back(&node);
        continue;
      }
      for (bool moved = true; moved;) {
        moved = false;
        std::erase_if(later, [&](const Node* each) {
          const bool now = copy_[each->outputs[0]] != kNoValue || (is_ready(*each) && place(*each));
          moved = moved || now;
          return now;
        });
      }
    }
    return copy_.finish();
  }

 private:
  /// Two sums over the same rows, of which the products of one are among the other's.
  bool fits_together(const SumOfScores& a, const SumOfScores& b) const {
    const auto has = [](const SumOfScores& all, const Node* one) {
      return std::find(all.walk.products.begin(), all.walk.products.end(), one) != all.walk.products.end();
    };
    const auto among = [&](const SumOfScores& few, const SumOfScores& all) {
      return std::all_of(few.walk.products.begin(), few.walk.products.end(),
                         [&](const Node* one) { return has(all, one); });
    };
    const auto width = [&](const SumOfScores& one) {
      return g_.type(one.product->outputs[0]).sizes[one.left ? 2 : 1].const_value();
    };
    return a.turned && b.turned && width(a) + width(b) <= kWidestTogether && (among(a, b) || among(b, a));
  }

  /// Whether `v` is computed from `below`, inside.
  bool is_below(const SumOfScores& found, ValueId v, ValueId below) const {
    std::vector<ValueId> open{v};
    while (!open.empty()) {
      const ValueId now = open.back();
      open.pop_back();
      if (now == below) return true;
      if (std::binary_search(found.walk.inside.begin(), found.walk.inside.end(), now))
        for_each_operand(*g_.producer(now), [&](ValueId operand) { open.push_back(operand); });
    }
    return false;
  }

  const Node* only_reader(const SumOfScores& found, ValueId v) const {
    for (const ValueId each : found.walk.inside) {
      const Node* node = g_.producer(each);
      bool reads = false;
      for_each_operand(*node, [&](ValueId operand) { reads = reads || operand == v; });
      if (reads) return node;
    }
    return nullptr;
  }

  DType dtype_of(const SumOfScores& found) const { return g_.type(before_cast(g_, found.value())).dtype; }
  AttentionMaker maker_of(const SumOfScores& found) { return {copy_, b_, g_.type(found.shares), dtype_of(found)}; }

  /// Whether the node could be made. The first sum of two waits for what the second one reads.
  bool place(const Node& node) {
    const auto kernel = kernel_of_.find(&node);
    if (kernel != kernel_of_.end()) return place_kernel(kernel->second);
    const auto score = scores_.find(&node);
    const auto cast = unrounded_.find(&node);
    if (score == scores_.end() && cast == unrounded_.end()) {
      copy_.copy(node);
      return true;
    }
    b_.set_location(node.location);
    const size_t first_new = copy_.to().num_nodes();
    if (score != scores_.end()) {
      set(node, maker_of(*score->second).scores(node), first_new);
    } else {
      const SumOfScores& each = *scores_.at(cast->second);
      const ValueId exact = maker_of(each).plain_scores(*cast->second);
      set(node, b_.reshape(exact, g_.type(node.outputs[0]).sizes), first_new);
    }
    return true;
  }

  bool place_kernel(const std::vector<const SumOfScores*>& kernel) {
    for (const SumOfScores* each : kernel) {
      if (copy_[each->shares] == kNoValue || copy_[each->value()] == kNoValue) return false;
    }
    b_.set_location(kernel.back()->product->location);
    const size_t first_new = copy_.to().num_nodes();
    std::vector<AttentionMaker::Sum> wanted;
    std::vector<const Node*> products;
    int64_t widest = 0;
    for (const SumOfScores* each : kernel) {
      wanted.push_back({copy_[each->shares], each->value(), !each->left, g_.type(each->product->outputs[0]).dtype});
      for (const Node* product : each->walk.products) {
        widest = std::max(widest, g_.type(operand_at(*product, 0)->value).sizes.back().const_value());
        if (std::find(products.begin(), products.end(), product) == products.end()) products.push_back(product);
      }
    }
    const std::vector<ValueId> made =
        maker_of(*kernel[0])
            .sums(wanted, copy_[hidden_scores(g_, *kernel[0])], kernel[0]->turned, widest, products.size());
    for (size_t i = 0; i < kernel.size(); ++i) {
      const Node& node = *kernel[i]->product;
      const std::vector<Expr>& sizes = g_.type(node.outputs[0]).sizes;
      ValueId result = made[i];
      if (kernel[i]->left) {
        result = b_.reshape(result, sizes);
      } else {
        result = b_.permute(b_.reshape(result, {sizes[0], sizes[2], sizes[1]}), {0, 2, 1});
      }
      set(node, result, first_new);
    }
    return true;
  }

  void set(const Node& node, ValueId made, size_t first_new) {
    copy_.set(node.outputs[0], with_type(copy_, made, g_.type(node.outputs[0]), first_new));
  }

  const Graph& g_;
  GraphCopy copy_;
  GraphBuilder b_;
  std::map<const Node*, const SumOfScores*> scores_;
  std::map<const Node*, std::vector<const SumOfScores*>> kernel_of_;
  std::map<const Node*, const Node*> unrounded_;  // a cast, and the product that it is of
};

}  // namespace

Graph attention_gradients(const Graph& graph, const PassOptions& options) {
  if (options.product_processors == 0) return graph;
  return run_pass("attention_gradients", graph, options, [](const Graph& g) {
    if (std::none_of(g.nodes().begin(), g.nodes().end(), is_softmax_share)) return g;
    const std::vector<SumOfScores> found = SumFinder(g).all();
    return found.empty() ? g : SumsInKernels(g, found).run();
  });
}

}  // namespace tatara
