// Graphs as text. Here and not in ir/, since the names of operators live in their definitions.
#include "ir/graph.h"
#include "ops/core/op_def.h"
#include "ops/core/parse.h"

namespace tatara {
namespace {

std::string value_name(ValueId id) { return id == kNoValue ? "None" : "%" + std::to_string(id); }

std::string arg_text(const Arg& arg) {
  struct Visitor {
    std::string operator()(const NoneArg&) const { return "None"; }
    std::string operator()(const TensorArg& t) const { return value_name(t.value); }
    std::string operator()(const TensorList& list) const {
      std::string text = "[";
      for (size_t i = 0; i < list.values.size(); ++i) text += (i > 0 ? ", " : "") + value_name(list.values[i]);
      return text + "]";
    }
    std::string operator()(const Scalar& s) const { return scalar_str(s); }
    std::string operator()(const SymInts& list) const {
      std::string text = "[";
      for (size_t i = 0; i < list.values.size(); ++i) text += (i > 0 ? ", " : "") + list.values[i].str();
      return text + "]";
    }
    std::string operator()(DType dtype) const { return std::string(dtype_name(dtype)); }
    std::string operator()(const Device& device) const { return "@" + device.str(); }
    std::string operator()(const std::string& text) const { return "\"" + text + "\""; }
    std::string operator()(const std::vector<bool>& list) const {
      std::string text = "b[";
      for (size_t i = 0; i < list.size(); ++i) text += std::string(i > 0 ? ", " : "") + (list[i] ? "True" : "False");
      return text + "]";
    }
    std::string operator()(const std::vector<double>& list) const {
      std::string text = "f[";
      for (size_t i = 0; i < list.size(); ++i) text += (i > 0 ? ", " : "") + scalar_str(Scalar(list[i]));
      return text + "]";
    }
  };
  return std::visit(Visitor(), arg);
}

}  // namespace

std::string print_graph(const Graph& graph, bool with_locations, size_t most) {
  std::string out = "graph(";
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const ValueId input = graph.inputs()[i];
    out += (i > 0 ? ", " : "") + value_name(input) + ": " + graph.type(input).str();
    if (const std::string name = graph.name(input); !name.empty()) out += " \"" + name + "\"";
  }
  out += ") {\n";
  const bool whole = most == 0 || graph.num_nodes() <= most;
  for (size_t n = 0; n < graph.num_nodes(); ++n) {
    if (!whole && n == most / 2) {
      const size_t between = graph.num_nodes() - most;
      out += "  ... " + std::to_string(between) + " nodes more\n";
      n += between;
    }
    const Node& node = graph.nodes()[n];
    out += "  ";
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      out += (i > 0 ? ", " : "") + value_name(node.outputs[i]) + ": " + graph.type(node.outputs[i]).str();
    }
    out += " = " + node.op->name + "(";
    for (size_t i = 0; i < node.args.size(); ++i) {
      if (i > 0) out += ", ";
      const bool keyword = i < node.op->schema.args.size() && node.op->schema.args[i].keyword_only;
      if (keyword) out += node.op->schema.args[i].name + "=";
      out += arg_text(node.args[i]);
    }
    out += ")";
    const bool located = with_locations && node.location.file != nullptr;
    if (located) out += "   # " + node.location.str();
    if (node.again > 0) {
      out += (located ? ", " : "   # ") + std::string("computed again (") + std::to_string(node.again) + ")";
    }
    out += "\n";
  }
  for (const InputWrite& write : graph.input_writes()) {
    out += "  write input " + std::to_string(write.input_index) + " <- " + value_name(write.value);
    if (write.times != 1) out += ", counted " + std::to_string(write.times);
    out += "\n";
  }
  out += "  return (";
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const GraphOutput& output = graph.outputs()[i];
    out += (i > 0 ? ", " : "") + value_name(output.value);
    if (output.alias.kind == OutputAlias::Kind::kInput) out += " alias of input " + std::to_string(output.alias.index);
    if (output.alias.kind == OutputAlias::Kind::kOutput)
      out += " alias of output " + std::to_string(output.alias.index);
    if (output.alias.group >= 0) out += " group " + std::to_string(output.alias.group);
    if (output.alias.sharing == OutputAlias::Sharing::kMay) out += " may share";
    if (output.alias.sharing == OutputAlias::Sharing::kOwn) out += " own";
    if (output.alias.sharing == OutputAlias::Sharing::kMustNot) out += " must not share";
    if (output.alias.sharing == OutputAlias::Sharing::kGiven) out += " given";
    const Expr offset = output.alias.storage_offset;
    if (offset.valid() && !offset.is_const(0)) out += " at " + offset.str();
  }
  return out + ")\n}\n";
}

std::string print_symbols(ExprContext& ctx) {
  std::string out;
  for (const Expr symbol : ctx.symbols()) {
    const IntRange range = ctx.range(symbol);
    out += "symbol " + std::string(ctx.symbol_name(symbol)) + " [" + std::to_string(range.lo) + ", " +
           std::to_string(range.hi) + "]";
    if (const std::optional<int64_t> hint = ctx.hint(symbol)) out += " = " + std::to_string(*hint);
    out += "\n";
  }
  for (const Expr fact : ctx.facts()) out += "fact " + fact.str() + "\n";
  return out;
}

}  // namespace tatara
