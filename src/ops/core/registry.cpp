#include <algorithm>
#include <deque>
#include <unordered_map>

#include "ops/core/op_def.h"
#include "support/error.h"
#include "support/made_once.h"

namespace tatara {

struct OpRegistry::Tables {
  std::deque<OpDef> defs;  // the keys of both tables are in the texts of these
  std::unordered_map<std::string_view, OpDef*> by_name;
  std::unordered_map<std::string_view, std::vector<PythonName>> by_python;
};

#define TATARA_OPS(family) void register_##family(OpRegistry&);
#include "ops/core/ops.def"
#undef TATARA_OPS

const OpRegistry& OpRegistry::global() {
  return made_once([] {
    OpRegistry r;
    r.tables_ = std::make_shared<Tables>();
#define TATARA_OPS(family) register_##family(r);
#include "ops/core/ops.def"
#undef TATARA_OPS
    return r;
  });
}

void OpRegistry::add(OpDef def) {
  try {
    def.schema = parse_schema(def.schema_text);
  } catch (const InvalidArgument& error) {
    throw InternalError("operator " + def.name + ": " + error.what());
  }
  if (tables_->by_name.contains(def.name)) throw InternalError("operator " + def.name + " is registered twice");
  OpDef& kept = tables_->defs.emplace_back(std::move(def));
  tables_->by_name.emplace(kept.name, &kept);
  ordered_.push_back(&kept);
  const auto list = [&](std::string_view names, PythonName::Form form) {
    while (!names.empty()) {
      const std::string_view word = names.substr(0, names.find(' '));
      if (!word.empty()) tables_->by_python[word].push_back({&kept, form});
      names.remove_prefix(std::min(word.size() + 1, names.size()));
    }
  };
  list(kept.names, PythonName::Form::kFunction);
  list(kept.inplace_names, PythonName::Form::kInplace);
  list(kept.reflected_names, PythonName::Form::kReflected);
}

OpDef& OpRegistry::amend(std::string_view name) {
  const auto found = tables_->by_name.find(name);
  if (found == tables_->by_name.end()) throw InternalError(str_cat("no operator ", name, " to amend"));
  return *found->second;
}

void OpRegistry::mark(bool OpTraits::* trait, std::initializer_list<const char*> names) {
  for (const char* name : names) amend(name).traits.*trait = true;
}

void OpRegistry::take_values(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    for (ArgSpec& arg : amend(name).schema.args) arg.takes_value = arg.takes_value || is_number(arg.type);
  }
}

void OpRegistry::take_value(const char* name, const char* argument, Within within) {
  for (ArgSpec& arg : amend(name).schema.args) {
    if (arg.name != argument) continue;
    arg.takes_value = true;
    arg.within = within;
    return;
  }
  throw InternalError(str_cat(name, " has no argument ", argument));
}

const OpDef* OpRegistry::find(std::string_view name) const {
  const auto found = tables_->by_name.find(name);
  return found == tables_->by_name.end() ? nullptr : found->second;
}

const OpDef& OpRegistry::get(std::string_view name) const {
  const OpDef* def = find(name);
  if (def == nullptr) throw InternalError(str_cat("no operator ", name));
  return *def;
}

const std::vector<OpRegistry::PythonName>* OpRegistry::find_python(std::string_view dotted) const {
  const auto found = tables_->by_python.find(dotted);
  return found == tables_->by_python.end() ? nullptr : &found->second;
}

std::vector<std::string> OpRegistry::python_names() const {
  std::vector<std::string> names;
  for (const auto& [name, candidates] : tables_->by_python) names.emplace_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace tatara
