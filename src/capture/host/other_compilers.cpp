#include "capture/host/other_compilers.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "capture/python/py_errors.h"

namespace tatara::capture {
namespace {

using namespace std::string_view_literals;

/// Files and folders below torch/.
constexpr std::array kCompilers = {"_dynamo/"sv,
                                   "_inductor/"sv,
                                   "_higher_order_ops/"sv,
                                   "_subclasses/"sv,
                                   "_export/"sv,
                                   "_functorch/_aot_autograd/"sv,
                                   "_functorch/aot_autograd.py"sv,
                                   "_functorch/compilers.py"sv,
                                   "_functorch/compile_utils.py"sv,
                                   "_functorch/partitioners.py"sv,
                                   "_functorch/fx_minifier.py"sv,
                                   "export/"sv,
                                   "fx/"sv,
                                   "jit/"sv,
                                   "onnx/"sv};

/// Single functions elsewhere, by the beginning of their qualified names.
struct Functions {
  std::string_view file, name;
};
constexpr std::array kFunctions = {Functions{"__init__.py", "compile"}, Functions{"_ops.py", "HigherOrderOperator."},
                                   Functions{"nn/attention/flex_attention.py", "flex_attention"}};

/// What is traced as any other code: what compilers have made, what switches them off, and marks and helpers that ordinary code
/// uses.
constexpr std::array kTraced = {
    Functions{"_dynamo/eval_frame.py", "DisableContext"},
    Functions{"_dynamo/eval_frame.py", "_callback_from_stance"},
    Functions{"_dynamo/eval_frame.py", "_maybe_set_eval_frame"},
    Functions{"_dynamo/eval_frame.py", "innermost_"},
    Functions{"_dynamo/eval_frame.py", "nothing"},
    Functions{"_dynamo/eval_frame.py", "_TorchDynamoContext.__init__"},
    Functions{"_dynamo/decorators.py", ""},
    Functions{"_dynamo/_trace_wrapped_higher_order_op.py", "ModIndex."},
    Functions{"_dynamo/_trace_wrapped_higher_order_op.py", "TransformGetItemToIndex."},
    Functions{"_dynamo/external_utils.py", ""},
    Functions{"_dynamo/mutation_guard.py", ""},
    Functions{"_export/wrappers.py", "allow_in_pre_dispatch_graph.<locals>"},
    Functions{"_export/utils.py", "register_dataclass_as_pytree_node.<locals>"},
    Functions{"fx/_compatibility.py", ""},
    Functions{"fx/immutable_collections.py", ""},
    Functions{"fx/traceback.py", ""},
    Functions{"fx/experimental/proxy_tensor.py", "<lambda>"},  // pytree takes torch.Size apart
    Functions{"fx/experimental/symbolic_shapes.py", ""},
    Functions{"fx/graph_module.py", "GraphModule.__new__.<locals>"},
    Functions{"fx/graph_module.py", "GraphModule.recompile.<locals>"},
    Functions{"fx/graph_module.py", "_WrappedCall.__call__"},
    Functions{"export/_unlift.py", ""},
    Functions{"jit/__init__.py", ""},
    Functions{"jit/_trace.py", "_script_if_tracing.<locals>"},
    Functions{"jit/_trace.py", "script_if_tracing.<locals>"}};

std::string_view text_in(PyObject* string) {
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(string, &length);
  if (text == nullptr) forget_error();
  return {text != nullptr ? text : "", text != nullptr ? static_cast<size_t>(length) : 0};
}

bool begins_with(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}

}  // namespace

bool is_other_compiler(const PyCodeObject* code, const TorchApi& api) {
  std::string_view file = text_in(code->co_filename);
  if (api.files.torch_folder.empty() || !begins_with(file, api.files.torch_folder)) return false;
  file.remove_prefix(api.files.torch_folder.size());
  const auto is = [&](const Functions& each) {
    return file == each.file && begins_with(text_in(code->co_qualname), each.name);
  };
  const auto holds = [file](std::string_view place) { return begins_with(file, place); };
  if (std::none_of(kCompilers.begin(), kCompilers.end(), holds)) {
    return std::any_of(kFunctions.begin(), kFunctions.end(), is);
  }
  // Questions: whether a compiler is at work, whether something is one's own.
  const std::string_view name = text_in(code->co_name);
  if (begins_with(name, "is_") || begins_with(name, "_is_")) return false;
  return std::none_of(kTraced.begin(), kTraced.end(), is);
}

}  // namespace tatara::capture
