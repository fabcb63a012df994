// The kernel of a list: one launch for kernels that differ in nothing but their arguments (loops/list_table.h).
#pragma once

#include <string>
#include <string_view>

#include "codegen/core/emit_context.h"

namespace tatara::codegen {

/// A kernel whose blocks find their item of the list, read its arguments and call the function "tatara_item" of one item.
std::string grouped_entry(EmitContext& context, std::string_view symbol);

}  // namespace tatara::codegen
