// Random numbers of ours that are bit by bit the host's.
#pragma once

#include <memory>

#include "runtime/host/host.h"

namespace tatara {

/// `tatara::bernoulli.out(size, p, dtype, *, out)`: bytes 0 and 1 into `out`, which is contiguous and on the CPU, as
/// `torch.empty(size, dtype=dtype).bernoulli_(p)` draws them. The host's generator is moved on as by that call.
std::unique_ptr<HostOp> make_bernoulli(HostOps& host);
/// `tatara::bernoulli_kept.out(size, p, dtype, *, out, state)`: the same, and the generator's state before it into `state`.
std::unique_ptr<HostOp> make_bernoulli_kept(HostOps& host);
/// `tatara::bernoulli_again.out(state, size, p, dtype, *, out)`: the numbers that are drawn from the state; the host's generator
/// stays as it is.
std::unique_ptr<HostOp> make_bernoulli_again(HostOps& host);
/// `tatara::get_rng_state.out(*, out)`: the state of the host's generator.
std::unique_ptr<HostOp> make_generator_state(HostOps& host);
/// `tatara::set_rng_state.out(state, *, out)`: the state that the host's generator has from then on; 0 into `out`.
std::unique_ptr<HostOp> make_set_generator_state(HostOps& host);
/// `tatara::manual_seed.out(seed, *, out)`: of all of the host's generators; 0 into `out`.
std::unique_ptr<HostOp> make_manual_seed(HostOps& host);

}  // namespace tatara
