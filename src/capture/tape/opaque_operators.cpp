#include "capture/tape/opaque_operators.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "capture/host/torch_api.h"
#include "capture/tape/node_operators.h"
#include "support/error.h"
#include "support/fork.h"
#include "support/made_once.h"

namespace tatara::capture {
namespace {

std::string word_of(PyObject* object, const char* name) {
  const Ref value = attr_or_null(object, name);
  const char* text = value && PyUnicode_Check(value.get()) ? PyUnicode_AsUTF8(value.get()) : nullptr;
  if (text == nullptr) forget_error();
  return text == nullptr ? std::string() : std::string(text);
}

bool is_plain(const OpSchema& schema) {
  for (const ArgSpec& arg : schema.args) {
    if (arg.alias >= 0 || arg.written || arg.type == ArgType::kGenerator) return false;
  }
  for (const int alias : schema.output_alias) {
    if (alias >= 0) return false;
  }
  return schema.num_outputs > 0;
}

/// Null: a schema that is not for plans.
std::unique_ptr<OpDef> definition(const std::string& text, const std::string& name, const std::string& overload) {
  auto def = std::make_unique<OpDef>();
  const size_t begin = text.find('(');
  if (begin == std::string::npos) return nullptr;
  try {
    def->schema_text = text.substr(begin);
    def->schema = parse_schema(def->schema_text);
  } catch (const Error&) {
    return nullptr;  // a type that the registry's schemas lack
  }
  if (!is_plain(def->schema)) return nullptr;
  def->name = overload.empty() ? name : name + "." + overload;
  def->kind = OpKind::kHost;
  def->host_name = name;
  def->host_overload = overload;
  def->has_out = false;
  // What it does beside its results nobody knows: it runs once in each call, in the program's order.
  def->nondeterministic = true;
  return def;
}

std::atomic<size_t> distrusted_count{0};

struct Known {
  ForkSafeMutex mutex;
  std::map<std::pair<std::string, bool>, std::unique_ptr<OpDef>>
      definitions;  // by schema, with or without a derivative
  std::set<std::string> distrusted;
};

}  // namespace

void distrust(const std::string& name) {
  Known& known = made_once<Known>();
  const std::lock_guard lock(known.mutex);
  known.distrusted.insert(name);
  ++distrusted_count;
}

size_t distrusted() { return distrusted_count.load(std::memory_order_relaxed); }

const OpDef* opaque_operator(const TapeNode& node, bool registered) {
  PyObject* func = node.func.get();
  if (func == nullptr || !is_dispatcher_operator(func) || node.mutates || node.has_generator()) return nullptr;
  const Ref schema = host_schema(func);
  const Ref written = schema ? Ref::steal(PyObject_Str(schema.get())) : Ref();
  const char* text = written ? PyUnicode_AsUTF8(written.get()) : nullptr;
  if (text == nullptr) {
    forget_error();
    return nullptr;
  }
  const std::string name = word_of(schema.get(), "name"), overload = word_of(schema.get(), "overload_name");
  if (name.find("::") == std::string::npos) return nullptr;
  Known& known = made_once<Known>();
  const std::lock_guard lock(known.mutex);
  if (known.distrusted.contains(name)) return nullptr;
  const auto [place, is_new] = known.definitions.try_emplace({text, registered});
  if (is_new) place->second = definition(text, name, overload);
  if (is_new && registered && place->second != nullptr) place->second->not_differentiable = true;
  return place->second.get();
}

}  // namespace tatara::capture
