#include "compiler/dump.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "support/error.h"

namespace tatara {
namespace {

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.close();
  if (!out) throw InvalidArgument(str_cat("option dump: cannot write ", path.string()));
}

}  // namespace

void dump_texts(const std::string& directory, std::string_view kind, const DumpFiles& files) {
  static std::atomic<int> number{0};
  const std::filesystem::path place = std::filesystem::path(directory) / str_cat(getpid(), "-", kind, number++);
  std::error_code error;
  std::filesystem::create_directories(place, error);
  if (error) throw InvalidArgument(str_cat("option dump: cannot make ", place.string(), ": ", error.message()));
  for (const auto& [name, text] : files) write_text(place / name, text);
}

void dump_compilation(const std::string& directory, const StageTexts& texts, const std::vector<PlanKernel>& kernels) {
  DumpFiles files{{"graph.txt", texts.graph}, {"lowered.txt", texts.lowered}, {"schedule.txt", texts.schedule}};
  for (size_t i = 0; i < texts.passes.size(); ++i) {
    const auto& [pass, text] = texts.passes[i];
    files.emplace_back(str_cat("pass-", i, pass.empty() ? "" : "-", pass, ".graph"), text);
  }
  for (size_t i = 0; i < kernels.size(); ++i) {
    files.emplace_back(str_cat("kernel-", i, ".loops"), kernels[i].loop_text);
    if (!kernels[i].llvm_text.empty()) files.emplace_back(str_cat("kernel-", i, ".ll"), kernels[i].llvm_text);
  }
  dump_texts(directory, "", files);
}

}  // namespace tatara
