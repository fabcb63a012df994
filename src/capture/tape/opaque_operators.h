// Operators of the host's dispatcher that the registry lacks: the user's own, and those of libraries.
#pragma once

#include <string>

#include "capture/tape/tape.h"
#include "ops/core/op_def.h"

namespace tatara::capture {

/// A definition made from the schema of the overload that the node calls, for a step in which the host runs it: its results are
/// tensors of their own, of the types that the tape has. Null: it is no such call, its schema writes or gives views, or has
/// arguments that a plan can't keep. It has no derivative rule: the host differentiates it between compiled parts.
/// `registered`: its results get their gradients from with_registered_derivative().
const OpDef* opaque_operator(const TapeNode& node, bool registered = false);

/// From now on no plan holds the operator, which has given something else than it says: torch runs it between compiled parts.
void distrust(const std::string& name);
/// How often that was said.
size_t distrusted();

}  // namespace tatara::capture
