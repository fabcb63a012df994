// Calls that come again, as in loops that were written out: types of results are inferred once.
#pragma once

#include "ops/core/builder.h"

namespace tatara {

/// GraphBuilder::call() on a graph of which no value was given another type than was inferred.
std::vector<ValueId> call_as_before(GraphBuilder& builder, const OpDef& op, std::vector<Arg> args);

}  // namespace tatara
