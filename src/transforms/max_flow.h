// Maximum flow and minimum cut (Dinic's algorithm: level graphs by breadth-first search, blocking flows by depth-first
// search; O(V^2 E), near-linear on the shallow graphs of a partition).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tatara {

class FlowNetwork {
 public:
  static constexpr int64_t kInfinite = int64_t{1} << 60;

  int add_vertex();
  /// A directed edge; parallel edges add up.
  void add_edge(int from, int to, int64_t capacity);
  /// Runs to the maximum and returns it. At most kInfinite.
  int64_t maximise(int source, int sink);
  /// After maximise(): whether the vertex is on the source's side of the cut that lies nearest to the source.
  std::vector<bool> source_side(int source) const;

 private:
  struct Edge {
    int to;
    int64_t capacity;
  };
  bool find_levels(int source, int sink);
  int64_t push(int source, int sink);

  std::vector<Edge> edges_;  // pairs: an edge and its reverse
  std::vector<std::vector<int>> out_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
};

}  // namespace tatara
