// Which of torch's own Python code is another compiler, or a tracer: it records or compiles what it calls, and none of ours may
// be in its way.
#pragma once

#include "capture/host/torch_api.h"

namespace tatara::capture {

/// Code of torch.compile, torch.export, FX, TorchScript, of the operators that take functions (torch.cond, while_loop,
/// flex_attention) and the like. Not what only asks whether one of them is at work, nor what they have made.
bool is_other_compiler(const PyCodeObject* code, const TorchApi& api);

}  // namespace tatara::capture
