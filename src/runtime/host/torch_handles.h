// Tensors of torch behind handles of its C interface.
#pragma once

#include <string_view>

#include "runtime/host/host.h"
#include "runtime/host/torch_abi.h"

namespace tatara::torch_abi {

/// Throws CompilationError, with what torch says, where the code is no success. `what` failed.
void check(const Api& api, ErrorCode code, std::string_view what);

inline TensorHandle handle_of(const HostTensor& tensor) { return static_cast<TensorHandle>(tensor.get()); }
/// Deletes the handle with the last reference.
HostTensor adopt(const Api& api, TensorHandle handle);
/// Another handle of the tensor, for the caller to delete.
TensorHandle new_reference(const Api& api, const HostTensor& tensor);

}  // namespace tatara::torch_abi
