// One operator, one place: no list about operators by name outside of src/ops. What passes ask about an operator is a trait of
// its OpDef; what remains are passes that match patterns, and names of other things.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/op_def.h"
#include "testing.h"

using namespace tatara;

namespace {

/// Files that may name operators, each with the reason. A file is listed with the names that it has, or "*" for all of them.
struct Allowed {
  const char* file;
  const char* names;
  const char* reason;
};

constexpr Allowed kAllowed[] = {
    {"transforms/online_softmax.cpp", "*", "matches a pattern: maximum, exponent, sum"},
    {"transforms/align_matmuls.cpp", "*", "matches a pattern: a product and how its operands were made"},
    {"transforms/own_products.cpp", "*", "matches a pattern: products that the host has four names for"},
    {"transforms/product_costs.cpp", "slice select", "matches a pattern: where the memory of an operand begins"},
    {"transforms/scaled_products.cpp", "*", "matches a pattern: a product with scales"},
    {"transforms/thin_products.cpp", "*", "matches a pattern: products, and how packed weights become matrices"},
    {"transforms/unpacked_parts.cpp", "slice_scatter copy",
     "matches a pattern: writes that fill a weight part by part"},
    {"transforms/part_writes.cpp", "*", "matches a pattern: inverses of views of views"},
    {"transforms/loop_stretch.cpp", "slice", "matches a pattern: parts of a tensor, turn by turn"},
    {"transforms/roll_loops.cpp", "stack cat unsqueeze select_scatter slice_scatter",
     "matches a pattern: values of all turns in one tensor"},
    {"transforms/join_writes.cpp", "*", "matches a pattern: rows written to a tensor that was just made"},
    {"transforms/canonicalize.cpp", "expand cast sum add_one_place", "matches a pattern: a sum of rows with one value"},
    {"schedule/emit.cpp", "copy", "the name of a kernel without operators"},
    {"capture/tape/tape.h", "detach", "detach and .data, asked of every recorded call: the registry has no .data"},
    {"capture/tape/node_operators.cpp", "rand bernoulli poisson multinomial rrelu dropout normal empty",
     "parts of the names of calls that the registry lacks"},
    {"capture/graph/tape_converter.cpp", "tensor", "a call with Python data, which has no schema of the registry's"},
    {"capture/graph/tape_numbers.cpp", "addcdiv sub lerp",
     "calls with a float of the tape, which have no schema of the registry's"},
    {"capture/tape/tape_print.cpp", "complex", "the name of a kind of dtypes"},
    {"runtime/host/matrix_ops.cpp", "addmm", "text of an error"},
    {"transforms/decompose.cpp", "cast", "adds a cast with a type that is known"},
    {"capture/trace/torch_nodes.cpp", "batch_norm instance_norm", "norms that the registry lacks write statistics too"},
    {"capture/trace/tracer_hooks.cpp", "linear", "the order in which eager's node has its operands"},
    {"capture/trace/transform_batches.cpp", "expand", "what vmap itself calls on results without a batch"},
};

/// Folders whose strings are of other things: they stand below operators, or know none.
constexpr std::string_view kWithoutOperators[] = {"support", "symbolic", "ir", "loops", "codegen"};

/// Functions whose strings are Python attributes, keys of dictionaries, or log channels, and never operators.
const std::set<std::string, std::less<>> kOtherNames = {"PyObject_CallMethod",
                                                        "PyObject_GetAttrString",
                                                        "PyDict_GetItemString",
                                                        "attr",
                                                        "attr_or_null",
                                                        "put",
                                                        "refuse",
                                                        "flag",
                                                        "integer",
                                                        "args",
                                                        "PACKAGE_FUNCTION",
                                                        "PyObject_CallFunction"};
/// Functions that make nodes: their first argument says which, and asks nothing.
const std::set<std::string, std::less<>> kMakers = {"op",   "op_multi", "unary",       "binary",   "reduce",
                                                    "view", "of_two",   "apply_ufunc", "rounding", "scan_rule"};
/// Registry look-ups, which make a node where the statement says so before it.
const std::set<std::string, std::less<>> kLookUps = {"get", "find"};
constexpr std::string_view kMaking[] = {"apply", "add_node", ".op = &", "part("};

struct Literal {
  std::string text;
  size_t line;
  std::string callee;  ///< the function whose argument it is, empty in lists and comparisons
  bool first = false;  ///< of its arguments
  std::string before;  ///< the code of the statement before it
};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// The string literals of C++ code, without those of comments and includes.
std::vector<Literal> literals_of(std::string_view code) {
  struct Open {
    char bracket;
    std::string callee;
    bool comma = false;
  };
  std::vector<Literal> found;
  std::vector<Open> open;
  std::string statement;
  size_t line = 1;
  for (size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    if (c == '\n') ++line;
    if (code.substr(i, 2) == "//" || (c == '#' && (i == 0 || code[i - 1] == '\n'))) {
      while (i + 1 < code.size() && code[i + 1] != '\n') ++i;
      continue;
    }
    if (c == '\'' && (i == 0 || !is_word(code[i - 1]))) {
      for (++i; i < code.size() && code[i] != '\''; ++i) i += code[i] == '\\' ? 1 : 0;
      continue;
    }
    if (c == '"') {
      Literal literal;
      literal.line = line;
      for (++i; i < code.size() && code[i] != '"'; ++i) {
        literal.text += code[i];
        if (code[i] == '\\' && i + 1 < code.size()) literal.text += code[++i];
      }
      literal.before = statement;
      if (!open.empty() && open.back().bracket == '(') {
        literal.callee = open.back().callee;
        literal.first = !open.back().comma;
      }
      found.push_back(std::move(literal));
      statement += "\"\"";
      continue;
    }
    if (c == '(' || c == '{' || c == '[') {
      std::string callee;
      size_t end = statement.find_last_not_of(" \n");
      end = end == std::string::npos ? 0 : end + 1;
      size_t begin = end;
      while (begin > 0 && is_word(statement[begin - 1])) --begin;
      if (c == '(') callee = statement.substr(begin, end - begin);
      open.push_back({c, callee});
    } else if (c == ')' || c == '}' || c == ']') {
      if (!open.empty()) open.pop_back();
    } else if (c == ',' && !open.empty()) {
      open.back().comma = true;
    }
    statement += c;
    if (c == ';') statement.clear();
  }
  return found;
}

/// Whether it says which node to make.
bool makes_node(const Literal& literal) {
  if (!literal.first) return false;
  if (kMakers.contains(literal.callee)) return true;
  return kLookUps.contains(literal.callee) &&
         std::any_of(std::begin(kMaking), std::end(kMaking),
                     [&](std::string_view each) { return literal.before.find(each) != std::string::npos; });
}

enum class Asks : uint8_t { kNothing, kName, kPart };

/// Whether the text ends with a comparison of a name, or a search in one: `op->name == `, `node.name.rfind(`.
Asks asked_by(std::string_view before) {
  const bool call = before.ends_with('(');
  while (!before.empty() && (before.back() == ' ' || before.back() == '\n' || before.back() == '('))
    before.remove_suffix(1);
  for (const std::string_view asks : {"==", "!=", ".rfind", ".find", ".starts_with", ".ends_with", ".contains"}) {
    if (!before.ends_with(asks)) continue;
    before.remove_suffix(asks.size());
    while (before.ends_with(' ')) before.remove_suffix(1);
    if (!before.ends_with(".name") && !before.ends_with("->name")) return Asks::kNothing;
    return call ? Asks::kPart : Asks::kName;
  }
  return Asks::kNothing;
}

enum class Strict : bool { kNames, kAll };

/// Lines of code that ask about operators by name, as "line: name". In code about Python's own names only what is compared with
/// the name of a node or call counts.
std::vector<std::string> asked_names(std::string_view code, Strict strict, const std::set<std::string>& operators) {
  std::vector<std::string> found;
  for (const Literal& literal : literals_of(code)) {
    const Asks asks = asked_by(literal.before);
    const bool asked = asks != Asks::kNothing;
    const bool part =
        asks == Asks::kPart && std::any_of(operators.begin(), operators.end(), [&](const std::string& each) {
          return each.find(literal.text) != std::string::npos;
        });
    if (!operators.contains(literal.text) && !part) continue;
    const bool other = kOtherNames.contains(literal.callee) || makes_node(literal);
    if (literal.text.empty()) continue;
    if (asked || (strict == Strict::kAll && !other))
      found.push_back(std::to_string(literal.line) + ": " + literal.text);
  }
  return found;
}

std::set<std::string> all_operators() {
  std::set<std::string> names;
  for (const OpDef* op : OpRegistry::global().all()) names.insert(op->name);
  return names;
}

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::filesystem::path sources() { return std::filesystem::path(TATARA_TEST_DIR).parent_path() / "src"; }

/// Files of the core under `folder`, by their paths below src/.
std::vector<std::string> files_under(const std::filesystem::path& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension();
    if (extension == ".cpp" || extension == ".h" || extension == ".inc" || extension == ".def") {
      files.push_back(std::filesystem::relative(entry.path(), sources()));
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool is_allowed(const std::string& file, const std::string& name) {
  return std::any_of(std::begin(kAllowed), std::end(kAllowed), [&](const Allowed& each) {
    const std::string names = std::string(" ") + each.names + " ";
    return file == each.file && (names == " * " || names.find(" " + name + " ") != std::string::npos);
  });
}

/// Code in which names of Python's own are at home: those of torch's and NumPy's callables, of types, of arguments.
bool is_about_python(const std::string& file) {
  for (const std::string_view room :
       {"capture/trace/", "capture/host/", "capture/vm/", "capture/python/", "capture/numbers/", "bindings/"}) {
    if (file.starts_with(room)) return true;
  }
  return file.starts_with("capture/graph/numpy/");
}

}  // namespace

TEST(OperatorNames, NoListOutsideOfTheFamilies) {
  const std::set<std::string> operators = all_operators();
  std::set<std::string> used;
  for (const std::string& file : files_under(sources())) {
    const std::string top = file.substr(0, file.find('/'));
    if (top == "ops") continue;
    const std::string code = text_of(sources() / file);
    if (std::find(std::begin(kWithoutOperators), std::end(kWithoutOperators), top) != std::end(kWithoutOperators)) {
      EXPECT_TRUE(code.find("#include \"ops/") == std::string::npos)
          << file << ": knows operators now, so its names are to be looked at";
      continue;
    }
    // NumPy's calls have NumPy's names.
    if (file.find("numpy") != std::string::npos && code.find("op->name") == std::string::npos) continue;
    const Strict strict = is_about_python(file) ? Strict::kNames : Strict::kAll;
    for (const std::string& each : asked_names(code, strict, operators)) {
      const std::string name = each.substr(each.find(' ') + 1);
      used.insert(file);
      EXPECT_TRUE(is_allowed(file, name))
          << "src/" << file << ":" << each << ": an operator by its name. What is asked about it belongs into OpTraits "
          << "(src/ops/core/op_def.h), set where the operator is registered";
    }
  }
  for (const Allowed& each : kAllowed) {
    EXPECT_TRUE(used.contains(each.file)) << each.file << " names no operator any more: take it off the list";
  }
}

TEST(OperatorNames, PlantedOnesAreFound) {
  const std::set<std::string> operators = all_operators();
  const auto found = [&](std::string_view code, Strict strict = Strict::kAll) {
    std::string all;
    for (const std::string& each : asked_names(code, strict, operators)) all += each + "\n";
    return all;
  };
  EXPECT_EQ(found("bool f(const Node& n) { return n.op->name == \"softmax\"; }"), "1: softmax\n");
  EXPECT_EQ(found("int x;\nconst Names saved = {\"relu\", \"no_such\",\n  \"mm\"};"), "2: relu\n3: mm\n");
  EXPECT_EQ(found("if (node.op->name.rfind(\"nll_loss\", 0) == 0) return;"), "1: nll_loss\n");
  EXPECT_EQ(found("return node.op == &OpRegistry::global().get(\"mm\");"), "1: mm\n");
  EXPECT_EQ(found("if (node.op->name.starts_with(\"as_str\")) return;"), "1: as_str\n");
  // Making a node asks nothing, nor do attributes, comments and parts of other words.
  EXPECT_EQ(found("b.binary(wide ? \"mul\" : \"div\", x, y); b.op(\"relayout\", {x});"), "");
  EXPECT_EQ(found("fz.apply_inplace(OpRegistry::global().get(\"copy\"), {x});"), "");
  EXPECT_EQ(found("b.op(\"where\", {x, std::string(\"add\")});"), "1: add\n");
  EXPECT_EQ(found("attr(tensor, \"real\"); // \"softmax\"\n/// \"mm\"\n"), "");
  EXPECT_EQ(found("throw Unsupported(\"softmax of integers\");"), "");
  // Among Python's own names: those that are compared with a call's.
  EXPECT_EQ(found("if (node.name == \"linear\") turn();", Strict::kNames), "1: linear\n");
  EXPECT_EQ(found("static const Names names = {\"abs\", \"pow\"}; if (module == \"add\") f();", Strict::kNames), "");
}

/// An operator is registered, differentiated and batched in one folder.
TEST(OperatorNames, RulesStandInTheFamilyOfTheOperator) {
  for (const std::string name :
       {"softmax", "log_softmax", "mm", "bmm", "linear", "batch_norm", "layer_norm", "conv2d"}) {
    std::set<std::string> folders;
    for (const std::string& file : files_under(sources() / "ops")) {
      for (const Literal& literal : literals_of(text_of(sources() / file))) {
        const bool used = literal.callee == "bin" || literal.callee == "un" || kLookUps.contains(literal.callee);
        if (literal.text == name && !used && !makes_node(literal))
          folders.insert(std::filesystem::path(file).parent_path());
      }
    }
    std::string all;
    for (const std::string& each : folders) all += each + " ";
    EXPECT_EQ(folders.size(), size_t{1}) << name << " stands in " << all;
  }
}
