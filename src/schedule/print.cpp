#include <algorithm>

#include "schedule/schedule.h"
#include "support/str_cat.h"

namespace tatara {

namespace {

std::string listed(const std::vector<Expr>& exprs) {
  std::string text = "[";
  for (size_t i = 0; i < exprs.size(); ++i) text += (i == 0 ? "" : ", ") + exprs[i].str();
  return text + "]";
}

std::string ref_text(const BufferRef& ref) {
  std::string text =
      str_cat("buffer ", ref.buffer, " ", dtype_name(ref.dtype), listed(ref.sizes), " strides ", listed(ref.strides));
  if (ref.offset.valid() && !ref.offset.is_const(0)) text += " at " + ref.offset.str();
  return text;
}

}  // namespace

const char* home_name(BufferHome home) {
  switch (home) {
    case BufferHome::kInput: return "input";
    case BufferHome::kOutput: return "output";
    case BufferHome::kArena: return "arena";
    case BufferHome::kConstant: return "constant";
    case BufferHome::kHost: return "host";
  }
  return "?";
}

std::string print_schedule(const Schedule& schedule) {
  const Plan& plan = schedule.plan;
  std::string text = "schedule {\n";
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const PlanBuffer& buffer = plan.buffers[b];
    text += str_cat("  buffer ", b, ": ", home_name(buffer.home));
    if (buffer.index >= 0) text += str_cat(" ", buffer.index);
    if (buffer.home == BufferHome::kArena && buffer.offset.valid()) text += " at " + buffer.offset.str();
    text += str_cat(" ", dtype_name(buffer.dtype), listed(buffer.sizes), " strides ", listed(buffer.strides), "\n");
  }
  for (const PlanStep& step : plan.steps) {
    if (const auto* launch = std::get_if<KernelLaunch>(&step)) {
      text += str_cat("  launch ", plan.kernels[static_cast<size_t>(launch->kernel)].name, "(");
      const size_t each = launch->buffers.size() / std::max<size_t>(launch->item_blocks.size(), 1);
      for (size_t i = 0; i < launch->buffers.size(); ++i) {
        text += str_cat(i == 0 ? "" : i % each == 0 ? "; " : ", ", launch->buffers[i]);
      }
      text += str_cat(") sizes ", listed(launch->sizes), " over ", launch->parallel_iterations.str(),
                      launch->clears ? " clears" : "", "\n");
    } else {
      const auto& call = std::get<HostCall>(step);
      text += str_cat("  host ", call.op, call.overload.empty() ? "" : ".", call.overload, "\n");
      for (const BufferRef& ref : call.tensors) text += "    " + ref_text(ref) + "\n";
    }
  }
  for (const PlanOutput& output : plan.outputs) text += "  return " + ref_text(output.ref) + "\n";
  if (plan.arena_bytes.valid()) text += "  arena " + plan.arena_bytes.str() + " bytes\n";
  for (const ScheduleNote& note : schedule.notes) text += str_cat("  note ", note.subject, ": ", note.text, "\n");
  text += "}\n";
  for (const auto& kernel : schedule.kernels) text += "\n" + loops::print_kernel(*kernel);
  return text;
}

}  // namespace tatara
