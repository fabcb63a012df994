// Graphs from text (what print_graph writes), and the rules that every graph keeps.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace tatara {

/// The symbols of a graph with their ranges and hints, and what is known of them, one a line: may stand before its text.
std::string print_symbols(ExprContext& ctx);

/// Reads what print_graph prints, and what print_symbols prints before it. Operators are looked up in the registry; symbols are
/// made in `ctx`. Locations are not read. InvalidArgument with the line on malformed text.
Graph parse_graph(std::string_view text, std::shared_ptr<ExprContext> ctx);

/// Throws InternalError when a rule of ir/graph.h is broken: values defined before use, one Arg per schema argument of a
/// fitting kind, sizes and strides of one length, outputs and writes that exist and fit.
void verify_graph(const Graph& graph);

}  // namespace tatara
