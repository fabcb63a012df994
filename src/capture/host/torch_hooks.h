// What the runtime needs of torch that only Python can give (runtime/host/host.h, TorchPythonHooks).
#pragma once

namespace tatara {

/// Installs the hooks; call once, with the GIL held. torch itself is imported when a hook is first used.
void install_torch_hooks();

}  // namespace tatara
