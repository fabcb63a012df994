#include "runtime/host/torch_handles.h"

#include <string>

#include "support/error.h"

namespace tatara::torch_abi {

void check(const Api& api, ErrorCode code, std::string_view what) {
  if (code == 0) return;
  std::string message(what);
  message += " failed in the host";
  if (const std::string text = last_error(api); !text.empty()) message += ": " + text;
  throw CompilationError(message);
}

HostTensor adopt(const Api& api, TensorHandle handle) {
  return HostTensor(handle, [&api](void* p) { api.aoti_torch_delete_tensor_object(static_cast<TensorHandle>(p)); });
}

TensorHandle new_reference(const Api& api, const HostTensor& tensor) {
  TensorHandle handle = nullptr;
  check(api, api.aoti_torch_new_tensor_handle(handle_of(tensor), &handle), "copying a tensor handle");
  return handle;
}

}  // namespace tatara::torch_abi
