// Matrix products as operators of the host, by the shortest way.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/host/host.h"
#include "runtime/host/torch_abi.h"

namespace tatara {

/// mm.out, bmm.out, addmm.out and baddbmm.out without the dispatcher, on the CPU by our own kernels where these are faster;
/// `general` serves what that cannot. Other operators: `general` itself.
std::unique_ptr<HostOp> make_matrix_op(const torch_abi::Api& api, std::string_view op, std::unique_ptr<HostOp> general);

/// wide_mm.out: a product of float32, bfloat16 or int8 as float32.
std::unique_ptr<HostOp> make_wide_product(const torch_abi::Api& api);

/// Whether this CPU has instructions for products of bfloat16, which the host uses.
bool multiplies_bfloat16();

/// Whether products on the CPU are to be ours where we have a kernel (option `matmul`). Asked for each of them.
bool ours_multiply();

}  // namespace tatara
