// tatara-opt: the text of a graph in, passes by name, the text out. What it reads and writes is what the option `dump` keeps
// as pass-<n>-<name>.graph.
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/emit_cpu.h"
#include "ops/core/parse.h"
#include "support/error.h"
#include "transforms/pipeline.h"

namespace tatara {
namespace {

constexpr std::string_view kUsage =
    "usage: tatara-opt [--pass NAME]... [--all] [--verify] FILE\n"
    "       tatara-opt --list\n"
    "Reads a graph (- for standard input), runs the passes in the order given, and prints the graph.\n"
    "  --pass NAME  run this pass; may be given several times\n"
    "  --all        run the passes of a compilation, in their order\n"
    "  --verify     check the graph before the first pass and after each\n"
    "  --list       the names of all passes; those of a compilation come first, in their order\n";

struct Arguments {
  std::vector<const GraphPass*> passes;
  std::string file;
  bool verify = false, list = false;
};

const GraphPass* pass_of(std::string_view name) {
  if (const GraphPass* pass = find_graph_pass(name)) return pass;
  std::string known;
  for (const GraphPass& pass : graph_passes()) known += str_cat(known.empty() ? "" : ", ", pass.name);
  throw InvalidArgument(str_cat("no pass '", name, "'; there are: ", known));
}

Arguments parse_arguments(const std::vector<std::string_view>& words) {
  Arguments arguments;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--list") {
      arguments.list = true;
    } else if (word == "--verify") {
      arguments.verify = true;
    } else if (word == "--all") {
      for (const GraphPass& pass : lowering_passes()) arguments.passes.push_back(&pass);
    } else if (word == "--pass") {
      if (++i == words.size()) throw InvalidArgument("--pass wants a name");
      arguments.passes.push_back(pass_of(words[i]));
    } else if (word != "-" && word.starts_with("-")) {
      throw InvalidArgument(str_cat("unknown option ", word, "\n", kUsage));
    } else if (!arguments.file.empty()) {
      throw InvalidArgument("one file at a time");
    } else {
      arguments.file = word;
    }
  }
  if (arguments.file.empty() && !arguments.list) throw InvalidArgument(std::string(kUsage));
  return arguments;
}

std::string read_text(const std::string& file) {
  if (file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream in(file);
  if (!in) throw InvalidArgument("cannot read " + file);
  return {std::istreambuf_iterator<char>(in), {}};
}

void run(const Arguments& arguments) {
  if (arguments.list) {
    for (const GraphPass& pass : graph_passes()) std::cout << pass.name << "\n";
    return;
  }
  Graph graph = parse_graph(read_text(arguments.file), std::make_shared<ExprContext>());
  if (arguments.verify) verify_graph(graph);
  PassOptions options;
  options.vector_bytes = host_cpu_target().vector_bytes();  // as a compilation for this machine
  for (const GraphPass* pass : arguments.passes) {
    graph = pass->run(graph, options);
    if (arguments.verify) verify_graph(graph);
  }
  std::cout << graph_file(graph);
}

}  // namespace
}  // namespace tatara

int main(int argc, char** argv) {
  try {
    tatara::run(tatara::parse_arguments({argv + 1, argv + argc}));
  } catch (const std::exception& error) {
    std::cerr << "tatara-opt: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
