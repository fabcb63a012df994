#include "capture/graph/tape_regions.h"

#include "ops/core/op_def.h"
#include "support/error.h"

namespace tatara::capture {

void TapeRegions::convert(const TapeNode& node) {
  const RegionMark& mark = *region_mark(node);
  if (mark.begins) {
    auto region = std::make_shared<Region>();
    region->parent = open_.empty() ? nullptr : open_.back().region;
    region->depth = static_cast<int>(open_.size()) + 1;
    region->reentrant = mark.reentrant;
    open_.push_back({std::move(region), c_.versions(), c_.made.graph.num_nodes()});
  } else {
    if (open_.empty()) throw InternalError("a checkpoint ends that has not begun");
    check(mark);
    open_.pop_back();
  }
  c_.builder.set_region(open_.empty() ? nullptr : open_.back().region);
}

/// What eager would do a second time while it computes gradients.
void TapeRegions::check(const RegionMark& end) const {
  const Open& open = open_.back();
  const std::vector<int64_t> now = c_.versions();
  for (size_t i = 0; i < now.size(); ++i) {
    const bool older = i < open.versions.size() && open.versions[i] >= 0;
    if (older && now[i] != open.versions[i]) throw Unsupported("a checkpoint writes to a tensor from outside of it");
  }
  for (size_t n = open.nodes; n < c_.made.graph.num_nodes(); ++n) {
    if (c_.made.graph.node(static_cast<NodeId>(n)).op->of_generator()) {
      throw Unsupported("a checkpoint reads or sets the state of random numbers");
    }
  }
  if (!end.redraws) return;
  for (size_t n = open.nodes; n < c_.made.graph.num_nodes(); ++n) {
    const Node& node = c_.made.graph.node(static_cast<NodeId>(n));
    if (node.op->kind == OpKind::kRandom) {
      throw Unsupported("a checkpoint with preserve_rng_state=False draws random numbers");
    }
  }
}

}  // namespace tatara::capture
