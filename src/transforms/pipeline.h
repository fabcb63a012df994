// The passes of a compilation that go from graph to graph, by name and in order.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "support/pass_options.h"

namespace tatara {

/// A pass of the compiler as the option `disable` knows it.
struct PassInfo {
  std::string_view name;
  enum class Phase : uint8_t { kCapture, kTraining, kLowering, kSchedule } phase;
  std::string_view what;
};
/// Every pass, in the order in which a graph meets them: what capture asks for, what graphs with gradients go through before
/// their plans are compiled, what each plan goes through, and the steps of its schedule that can be left out.
const std::vector<PassInfo>& all_passes();

struct GraphPass {
  std::string_view name;  // as the option `disable` has it
  Graph (*run)(const Graph& graph, const PassOptions& options);
};

/// What a graph goes through before it is scheduled. A pass may come twice.
const std::vector<GraphPass>& lowering_passes();
/// Every pass that takes a graph alone.
const std::vector<GraphPass>& graph_passes();
/// Null when there is no such pass.
const GraphPass* find_graph_pass(std::string_view name);

/// The graph as tools/tatara-opt reads and writes it: its symbols, then the graph, its values numbered densely.
std::string graph_file(const Graph& graph);

/// All of lowering_passes(). `after`, where it is set, sees the graph behind each pass.
Graph run_passes(const Graph& graph, const PassOptions& options,
                 const std::function<void(std::string_view pass, const Graph&)>& after = {});

}  // namespace tatara
