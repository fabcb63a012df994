#include "transforms/max_flow.h"

#include <algorithm>
#include <deque>

namespace tatara {

int FlowNetwork::add_vertex() {
  out_.emplace_back();
  return static_cast<int>(out_.size()) - 1;
}

void FlowNetwork::add_edge(int from, int to, int64_t capacity) {
  out_[static_cast<size_t>(from)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, std::min(capacity, kInfinite)});
  out_[static_cast<size_t>(to)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

bool FlowNetwork::find_levels(int source, int sink) {
  level_.assign(out_.size(), -1);
  level_[static_cast<size_t>(source)] = 0;
  std::deque<int> queue{source};
  while (!queue.empty()) {
    const int v = queue.front();
    queue.pop_front();
    for (const int e : out_[static_cast<size_t>(v)]) {
      const Edge& edge = edges_[static_cast<size_t>(e)];
      if (edge.capacity <= 0 || level_[static_cast<size_t>(edge.to)] >= 0) continue;
      level_[static_cast<size_t>(edge.to)] = level_[static_cast<size_t>(v)] + 1;
      queue.push_back(edge.to);
    }
  }
  return level_[static_cast<size_t>(sink)] >= 0;
}

int64_t FlowNetwork::push(int source, int sink) {
  // One augmenting path of the level graph, by a stack of edges: graphs of long programs are deep.
  std::vector<int> path;
  int v = source;
  while (v != sink) {
    size_t& next = next_[static_cast<size_t>(v)];
    const std::vector<int>& out = out_[static_cast<size_t>(v)];
    bool stepped = false;
    for (; next < out.size(); ++next) {
      const Edge& edge = edges_[static_cast<size_t>(out[next])];
      if (edge.capacity > 0 && level_[static_cast<size_t>(edge.to)] == level_[static_cast<size_t>(v)] + 1) {
        path.push_back(out[next]);
        v = edge.to;
        stepped = true;
        break;
      }
    }
    if (stepped) continue;
    if (path.empty()) return 0;
    const int last = path.back();
    path.pop_back();
    v = edges_[static_cast<size_t>(last ^ 1)].to;
    ++next_[static_cast<size_t>(v)];
  }
  int64_t flow = kInfinite;
  for (const int e : path) flow = std::min(flow, edges_[static_cast<size_t>(e)].capacity);
  for (const int e : path) {
    edges_[static_cast<size_t>(e)].capacity -= flow;
    edges_[static_cast<size_t>(e ^ 1)].capacity += flow;
  }
  return flow;
}

int64_t FlowNetwork::maximise(int source, int sink) {
  int64_t total = 0;
  while (total < kInfinite && find_levels(source, sink)) {
    next_.assign(out_.size(), 0);
    while (const int64_t flow = push(source, sink)) {
      total += flow;
      if (total >= kInfinite) return kInfinite;
    }
  }
  return total;
}

std::vector<bool> FlowNetwork::source_side(int source) const {
  std::vector<bool> seen(out_.size(), false);
  std::deque<int> queue{source};
  seen[static_cast<size_t>(source)] = true;
  while (!queue.empty()) {
    const int v = queue.front();
    queue.pop_front();
    for (const int e : out_[static_cast<size_t>(v)]) {
      const Edge& edge = edges_[static_cast<size_t>(e)];
      if (edge.capacity <= 0 || seen[static_cast<size_t>(edge.to)]) continue;
      seen[static_cast<size_t>(edge.to)] = true;
      queue.push_back(edge.to);
    }
  }
  return seen;
}

}  // namespace tatara
