// What the runtime needs of torch that only Python can give (runtime/host/host.h, TorchPythonHooks).
#pragma once

#include "capture/python/py.h"
#include "runtime/host/host.h"

namespace tatara {

/// The tensor itself, as the runtime holds one; null: it is no tensor. With the GIL held.
HostTensor host_tensor_of(PyObject* tensor);

/// Installs the hooks; call once, with the GIL held. torch itself is imported when a hook is first used.
void install_torch_hooks();

}  // namespace tatara
