// What the channels `capture` and `guards` say of a trace and its entries, and what the option `dump` keeps of them.
#pragma once

#include <string>

#include "capture/entries/entry_cache.h"
#include "support/log.h"

namespace tatara::capture {

/// "f (model.py:12)"
std::string place_text(const BreakInfo& place);
/// Of where `code` stands at `offset`.
std::string place_text(PyCodeObject* code, int offset);

/// A graph break, or why something runs in eager.
void log_break(const BreakInfo& why);
/// A finished entry: how it ends, its guards, and its tape and guards as files where the option `dump` asks for them.
void note_entry(const Entry& entry);
/// An entry is used for the first time.
void log_first_hit(const Entry& entry);

}  // namespace tatara::capture
