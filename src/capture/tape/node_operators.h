// Which of the registry's operators a recorded call is.
#pragma once

#include <string>
#include <string_view>

#include "capture/tape/tape.h"
#include "ops/core/op_def.h"

namespace tatara::capture {

/// The registry's name of the function ("torch.Tensor.add"); empty: it has none.
std::string known_name(const TapeNode& node);

/// Whether the registry knows that the call's one result requires grad where an operand does.
bool hands_on_history(const TapeNode& node);

/// Whether the registry knows that the call gives tensors of their own.
bool is_no_view(const TapeNode& node);

/// Whether a result may be a view of the first operand. True of calls that the registry lacks.
bool may_be_view(const Tape& tape, const TapeNode& node);

/// The schema of an overload of the host's dispatcher, or of the only one of an operator; null: there are several.
Ref host_schema(PyObject* func);

/// Whether the host's schema of the call says that it gives tensors of their own. Nobody checks that of a user's operator.
bool says_no_view(const TapeNode& node);

/// Whether results differ from call to call: random numbers, or what was in memory before.
bool varies(const TapeNode& node);
/// Whether the call, which the registry lacks, makes a tensor of plain numbers alone, such as a window.
bool is_same_in_each_call(const TapeNode& node);

/// Whether it makes a tensor of nothing and draws no random numbers for that.
bool makes_without_draws(const TapeNode& node);

/// The argument by which an operator multiplies what it adds ("alpha" of add), where all others are in `args`. Null of other
/// operators.
const char* factor_argument(std::string_view name, PyObject* args);

/// Whether it is a view that becomes the operand itself: x.unsqueeze_(0). The view's name ("torch.Tensor.unsqueeze"); else empty.
std::string view_in_place(const TapeNode& node);

/// Whether the registry has a form of the function with a tensor as positional argument `place`.
bool takes_tensor(const TapeNode& node, size_t place);

/// Whether the registry says it of one of the operators that the call may be.
bool any_operator(const TapeNode& node, bool OpTraits::* trait);
bool any_operator(const TapeNode& node, bool (*is_one)(const OpDef&));

}  // namespace tatara::capture
