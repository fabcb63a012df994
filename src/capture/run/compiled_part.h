// A tape, or a part of one, as compiled plans.
#pragma once

#include <memory>
#include <vector>

#include "capture/entries/entry_cache.h"
#include "capture/graph/graph_from_tape.h"
#include "compiler/compiler.h"

namespace tatara::capture {

/// Runs the nodes [first, last) of the entry's tape, which are NumPy's calls, compiled where that is possible; the texts of the graphs go
/// to the entry's report.
std::unique_ptr<GraphRunner> numpy_part(Entry& entry, const CompileOptions& options, TorchApi& api, size_t first,
                                        size_t last, Ref& details);

struct CompiledPart {
  std::unique_ptr<GraphRunner> runner;
  Ref details;                       // see details_of()
  std::vector<ExprProgram> facts{};  // what it took as given of sizes that data decide
};

inline constexpr const char* kDataDecide = "data decide the size of its result, or its value";

/// Compiles the graph of `tape`, with gradients where it is a training tape. The texts, and what was decided by the sizes of
/// the present call, go to the entry. Throws tatara::Error.
CompiledPart compile_part(Entry& entry, TapeGraph made, const std::shared_ptr<const Tape>& tape,
                          const CompileOptions& options);

}  // namespace tatara::capture
