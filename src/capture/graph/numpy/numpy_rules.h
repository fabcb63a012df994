// What each NumPy call means in operators of the registry: one rule a name.
#pragma once

#include "capture/graph/numpy/numpy_graph.h"

namespace tatara::capture {

using NumpyRule = void (*)(NumpyGraph&, const TapeNode&);

/// Null when NumPy runs the call. `for_tensors`: without those rules beside which the package has a meaning for tensors.
NumpyRule find_numpy_rule(const TapeNode& node, const NumpyApi& np, bool for_tensors);

/// Whether the call is one of a ufunc of NumPy's own.
bool is_numpy_ufunc(const TapeNode& node, const NumpyApi& np);

/// Whether the name is that of a ufunc with a rule.
bool find_numpy_ufunc(const std::string& name);

/// Arguments of a call by parameter name. Null: not given (or NumPy's own mark for that).
class NumpyArgs {
 public:
  /// Throws Unsupported for keywords that are not among `names`.
  NumpyArgs(const TapeNode& node, const NumpyApi& np, std::initializer_list<const char*> names);
  PyObject* operator[](const char* name) const;
  /// Unsupported unless every one of them is missing or None.
  void refuse(std::initializer_list<const char*> names) const;
  bool flag(const char* name, bool fallback) const;
  int64_t integer(const char* name, int64_t fallback) const;

 private:
  std::vector<std::pair<std::string, PyObject*>> values_;
};

}  // namespace tatara::capture
