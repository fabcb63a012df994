// Indexing on a tape, x[key] and x[key] = value, as view operators, index and index_put.
#pragma once

#include <vector>

#include "capture/graph/tape_conversion.h"

namespace tatara::capture {

class TapeIndexing {
 public:
  using TensorRef = Functionalizer::TensorRef;
  explicit TapeIndexing(TapeConversion& conversion) : c_(conversion) {}

  TensorRef get_item(const TapeNode& node);
  void set_item(const TapeNode& node);

 private:
  struct Indexed {
    TensorRef base;      // after the basic indices
    TensorList tensors;  // kNoValue: a full slice
    bool advanced = false;
  };
  enum class Of : bool { kRead, kWrite };
  Indexed index(const TapeNode& node, Of of);
  TensorRef view(const char* op, std::vector<Arg> args);
  Scalar number(PyObject* o);
  TensorRef constant(PyObject* numbers, Device device);
  TensorRef slice(TensorRef base, int64_t dim, const PySliceObject* slice);
  bool fill_masked(const TapeNode& node);
  TensorRef filled(TensorRef like, PyObject* value);

  TapeConversion& c_;
};

}  // namespace tatara::capture
