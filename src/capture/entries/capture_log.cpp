#include "capture/entries/capture_log.h"

#include "capture/host/errors.h"
#include "capture/tape/tape_print.h"
#include "compiler/dump.h"
#include "support/error.h"
#include "support/options.h"
#include "support/str_cat.h"

namespace tatara::capture {
namespace {

std::string end_of(const Entry& entry) {
  switch (entry.end) {
    case Entry::End::kReturn: return "ends in a return";
    case Entry::End::kBreak: return "ends in a graph break";
    case Entry::End::kEager: return "runs in eager";
  }
  return {};
}

std::string entry_place(const Entry& entry) {
  return place_text(reinterpret_cast<PyCodeObject*>(entry.code), entry.offset);
}

}  // namespace

std::string place_text(const BreakInfo& place) {
  return str_cat(place.function, " (", place.file.substr(place.file.rfind('/') + 1), ":", place.line, ")");
}

std::string place_text(PyCodeObject* code, int offset) { return place_text(place_of(code, offset)); }

void log_break(const BreakInfo& why) {
  if (log_enabled(LogChannel::kCapture)) {
    log_line(LogChannel::kCapture, str_cat("graph break in ", place_text(why), ": ", why.reason));
  }
}

void note_entry(const Entry& entry) {
  if (log_enabled(LogChannel::kCapture)) {
    const size_t calls = entry.tape ? entry.tape->nodes().size() : 0;
    std::string text = str_cat("entry of ", entry_place(entry), ": ", calls, " calls, ", end_of(entry));
    for (const std::string& effect : entry.effects.describe()) text += "\n  effect: " + effect;
    if (!entry.report.fallback_reason.empty()) text += "; runs call by call: " + entry.report.fallback_reason;
    log_line(LogChannel::kCapture, text);
  }
  const std::string directory = option_text(Option::kDump);
  if (!log_enabled(LogChannel::kGuards) && directory.empty()) return;
  const std::vector<std::string> lines = entry.guard_lines();
  if (log_enabled(LogChannel::kGuards)) {
    std::string text = str_cat("guards of ", entry_place(entry), ":");
    for (const std::string& line : lines) text += "\n  " + line;
    log_line(LogChannel::kGuards, text);
  }
  if (directory.empty()) return;
  std::string guards;
  for (const std::string& line : lines) guards += line + "\n";
  try {
    dump_texts(directory, "entry-",
               {{"tape.txt", entry.tape ? entry.tape->str() : std::string()},
                {"graph.txt", entry.report.graph_text},
                {"guards.txt", guards}});
  } catch (const Error& error) {
    TATARA_LOG(kCapture, error.what());  // the program goes on; a graph's own texts have said so in the report
  }
}

void log_first_hit(const Entry& entry) {
  if (log_enabled(LogChannel::kCapture))
    log_line(LogChannel::kCapture, "first hit of the entry of " + entry_place(entry));
}

}  // namespace tatara::capture
