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

void dump_compilation(const std::string& directory, const StageTexts& texts, const std::vector<PlanKernel>& kernels) {
  static std::atomic<int> number{0};
  const std::filesystem::path place = std::filesystem::path(directory) / str_cat(getpid(), "-", number++);
  std::error_code error;
  std::filesystem::create_directories(place, error);
  if (error) throw InvalidArgument(str_cat("option dump: cannot make ", place.string(), ": ", error.message()));
  write_text(place / "graph.txt", texts.graph);
  write_text(place / "lowered.txt", texts.lowered);
  write_text(place / "schedule.txt", texts.schedule);
  for (size_t i = 0; i < kernels.size(); ++i) {
    write_text(place / str_cat("kernel-", i, ".loops"), kernels[i].loop_text);
    if (!kernels[i].llvm_text.empty()) write_text(place / str_cat("kernel-", i, ".ll"), kernels[i].llvm_text);
  }
}

}  // namespace tatara
