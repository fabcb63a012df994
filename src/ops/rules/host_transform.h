// Operators that the host differentiates or batches: nodes that run an operator of the host under its own transforms.
#pragma once

#include <cstdint>

#include "ops/core/op_def.h"

namespace tatara {

enum class HostTransform : uint8_t {
  kDerivative,  // further arguments: cotangents of the results, which tensors want a gradient; results: these gradients
  kForward,  // further argument: a tangent or None for each tensor; results: tangents of those results that are numbers
  kRegistered,  // the derivative that a library has registered for the operator; further arguments: results, and the two above
  kBatch,  // further argument: which tensors have the batch in front; results: all with the batch in front
};

/// The operator `op` of the host, or one made of such by transforms, under a further transform. Its name in the host tells the
/// bindings which ones, inner first, and how many arguments the host's own has: "tatara_host:dv:3:aten::median".
const OpDef& host_transform(const OpDef& op, HostTransform transform);
/// Whether the operator is one that host_transform() made.
bool is_host_transform(const OpDef& op);
/// Whether it runs an operator of the user's, or of a library, itself or under transforms. What that does beside its results is
/// its own, under vmap too.
bool is_library_operator(const OpDef& op);

}  // namespace tatara
