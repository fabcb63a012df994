// What a cache entry depends on: the arguments' structure, outside objects that were read, and the interpreter's state.
#pragma once

#include "capture/entries/global_state.h"
#include "capture/entries/identities.h"
#include "capture/entries/number_ranges.h"
#include "capture/entries/object_guards.h"
#include "capture/entries/value_guard.h"
