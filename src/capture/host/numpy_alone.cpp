#include "capture/host/numpy_alone.h"

namespace tatara::capture {
namespace {

thread_local int g_numpy_alone = 0;

}  // namespace

NumpyAlone::NumpyAlone() { ++g_numpy_alone; }
NumpyAlone::~NumpyAlone() { --g_numpy_alone; }

bool numpy_alone() { return g_numpy_alone > 0; }

}  // namespace tatara::capture
