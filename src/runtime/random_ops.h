// Random numbers of ours that are bit by bit the host's.
#pragma once

#include <memory>

#include "runtime/host.h"

namespace tatara {

/// `tatara::bernoulli.out(size, p, dtype, *, out)`: bytes 0 and 1 into `out`, which is contiguous and on the CPU, as
/// `torch.empty(size, dtype=dtype).bernoulli_(p)` draws them. The host's generator is moved on as by that call.
std::unique_ptr<HostOp> make_bernoulli(HostOps& host);

}  // namespace tatara
