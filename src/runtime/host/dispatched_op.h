// Operators of the host by way of its dispatcher.
#pragma once

#include <memory>
#include <string>

#include "runtime/host/host.h"
#include "runtime/host/torch_abi.h"

namespace tatara {

/// `schema` is the host's text of the overload's. What the C interface cannot carry goes by way of Python.
std::unique_ptr<HostOp> make_dispatched_op(const torch_abi::Api& api, const std::string& op,
                                           const std::string& overload, const std::string& schema);

}  // namespace tatara
