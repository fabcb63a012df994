// Products of 8-bit floats in kernels of our own.
#pragma once

#include <vector>

#include "ops/core/builder.h"
#include "transforms/pass.h"

namespace tatara {

/// A value for the node's result, where it is such a product that a kernel of ours does faster than the host; else empty. `followed`: by
/// what such a kernel does, too.
std::vector<ValueId> scaled_products(GraphCopy& copy, GraphBuilder& b, const Node& node, bool followed, int processors);

}  // namespace tatara
