#include "transforms/result_groups.h"

#include <algorithm>
#include <bit>
#include <compare>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "transforms/autodiff.h"

namespace tatara {
namespace {

/// A set of results.
class Mask {
 public:
  Mask() = default;  // of none, whatever their number
  explicit Mask(size_t count) : words_((count + kBits - 1) / kBits) {}

  bool empty() const { return words_.empty(); }
  bool has(size_t i) const { return (words_[i / kBits] >> (i % kBits) & 1U) != 0; }
  void set(size_t i) { words_[i / kBits] |= uint64_t{1} << (i % kBits); }
  void add(const Mask& other) {
    if (words_.size() < other.words_.size()) words_.resize(other.words_.size());
    for (size_t w = 0; w < other.words_.size(); ++w) words_[w] |= other.words_[w];
  }
  bool contains(const Mask& other) const {
    for (size_t w = 0; w < words_.size(); ++w) {
      if ((other.words_[w] & ~words_[w]) != 0) return false;
    }
    return true;
  }
  size_t count() const {
    size_t bits = 0;
    for (const uint64_t word : words_) bits += static_cast<size_t>(std::popcount(word));
    return bits;
  }
  template <typename Fn>
  void for_each(Fn&& fn) const {
    for (size_t w = 0; w < words_.size(); ++w) {
      for (uint64_t left = words_[w]; left != 0; left &= left - 1)
        fn(w * kBits + static_cast<size_t>(std::countr_zero(left)));
    }
  }
  friend auto operator<=>(const Mask&, const Mask&) = default;

 private:
  static constexpr size_t kBits = 64;
  std::vector<uint64_t> words_;
};

/// An operation of the host: a recorded call, or a checkpoint that is one node to it.
using Operation = std::pair<const Region*, int>;

Operation operation_of(const Node& node, size_t number) {
  const Region* whole = nullptr;
  for (const Region* each = node.region.get(); each != nullptr; each = each->parent.get()) {
    if (each->reentrant) whole = each;
  }
  if (whole != nullptr) return {whole, 0};
  return {nullptr, node.location.call >= 0 ? node.location.call : -1 - static_cast<int>(number)};
}

/// The operations in the histories of results: for each set of results those that just these have in common, large sets first.
std::vector<std::pair<Mask, std::vector<const Node*>>> shared_operations(const Graph& graph,
                                                                         const std::vector<ValueId>& results,
                                                                         const std::vector<bool>& needs) {
  std::vector<Mask> of_value(graph.num_values());
  for (size_t i = 0; i < results.size(); ++i) {
    Mask own(results.size());
    own.set(i);
    of_value[static_cast<size_t>(results[i])].add(own);
  }
  std::map<Operation, std::pair<Mask, std::vector<const Node*>>> operations;
  for (size_t n = graph.num_nodes(); n-- > 0;) {
    const Node& node = graph.node(static_cast<NodeId>(n));
    Mask mask;
    for (const ValueId v : node.outputs) mask.add(of_value[static_cast<size_t>(v)]);
    if (mask.empty() || !gives_gradients(node, needs)) continue;
    for_each_operand(node, [&](ValueId v) { of_value[static_cast<size_t>(v)].add(mask); });
    auto& [whole, nodes] = operations[operation_of(node, n)];
    whole.add(mask);
    nodes.push_back(&node);
  }
  std::map<Mask, std::vector<const Node*>> shared;
  for (auto& [operation, found] : operations) {
    std::vector<const Node*>& all = shared[found.first];
    all.insert(all.end(), found.second.begin(), found.second.end());
  }
  std::vector<std::pair<Mask, std::vector<const Node*>>> all(std::make_move_iterator(shared.begin()),
                                                             std::make_move_iterator(shared.end()));
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first.count() > b.first.count(); });
  return all;
}

/// Which results share something that is used up, with which.
class Shares {
 public:
  explicit Shares(size_t count) : share_(count, Mask(count)) {}

  void join(const Mask& mask) {
    if (joined(mask)) return;
    mask.for_each([&](size_t i) { share_[i].add(mask); });
    joined_.push_back(mask);
  }
  /// Whether these all do, each with each.
  bool all(const Mask& mask) const {
    if (joined(mask)) return true;
    if (mask.count() < 2) return true;
    bool each = true;
    mask.for_each([&](size_t i) { each = each && share_[i].contains(mask); });
    return each;
  }
  bool uses_up(size_t i) const { return share_[i].has(i); }
  /// Joins those that share something; where not all do so each with each, they are apart.
  std::vector<int> groups() const {
    const size_t count = share_.size();
    std::vector<int> group(count, -1);
    for (size_t i = 0; i < count; ++i) {
      if (group[i] >= 0) continue;
      Mask mine(count);
      mine.set(i);
      for (bool grows = true; grows;) {
        const Mask before = mine;
        before.for_each([&](size_t j) { mine.add(share_[j]); });
        grows = mine != before;
      }
      const bool whole = all(mine);
      mine.for_each([&](size_t j) { group[j] = static_cast<int>(whole ? i : j); });
    }
    return group;
  }

 private:
  bool joined(const Mask& mask) const {
    return std::any_of(joined_.begin(), joined_.end(), [&](const Mask& each) { return each.contains(mask); });
  }

  std::vector<Mask> share_;
  std::vector<Mask> joined_;  // none of them a part of an earlier one
};

}  // namespace

ResultGroups group_results(const Graph& graph, const std::vector<bool>& inputs,
                           const std::function<bool(const Node&)>& saves) {
  const std::vector<bool> needs = values_needing_grad(graph, inputs);
  ResultGroups groups{std::vector<int>(graph.outputs().size(), -1), {}, {}};
  std::vector<ValueId> results;
  std::vector<size_t> places;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const GraphOutput& output = graph.outputs()[i];
    const bool needed = output.value != kNoValue && needs[static_cast<size_t>(output.value)];
    if (!needed || output.alias.kind != OutputAlias::Kind::kFresh) continue;
    results.push_back(output.value);
    places.push_back(i);
  }
  const auto shared = shared_operations(graph, results, needs);
  Shares shares(results.size());
  for (const auto& [mask, nodes] : shared) {
    if (std::any_of(nodes.begin(), nodes.end(), [](const Node* node) { return node->op->traits.always_saves; }))
      shares.join(mask);
  }
  std::vector<bool> known;
  for (size_t i = 0; i < results.size(); ++i) known.push_back(shares.uses_up(i));
  // Asking costs imports the first time.
  for (const auto& [mask, nodes] : shared) {
    if (!shares.all(mask) && std::any_of(nodes.begin(), nodes.end(), [&](const Node* node) { return saves(*node); }))
      shares.join(mask);
  }
  const std::vector<int> group = shares.groups();
  std::map<int, int> numbers;
  for (size_t i = 0; i < results.size(); ++i) {
    const int number = numbers.try_emplace(group[i], static_cast<int>(numbers.size())).first->second;
    groups.of_output[places[i]] = number;
    groups.used_up.resize(numbers.size(), false);
    groups.used_up[static_cast<size_t>(number)] = groups.used_up[static_cast<size_t>(number)] || known[i];
  }
  return groups;
}

}  // namespace tatara
