#include "capture/entries/object_reads.h"

#include "capture/entries/lifetimes.h"
#include "capture/host/object_kinds.h"
#include "support/str_cat.h"

namespace tatara::capture {

bool ObjectRead::is_same(PyObject* now) const {
  return weak ? now != Py_None && now == found() : same_value(now, value.get());
}

bool ObjectCheck::fail(const char* what, PyObject* name, PyObject* before, PyObject* now) const {
  if (why != nullptr)
    *why = str_cat(what, " ", short_repr(name), ": ", short_repr(before), " became ", short_repr(now));
  return false;
}

bool ObjectCheck::same(const char* what, const ObjectRead& read, PyObject* now) {
  if (read.source < 0) return read.is_same(now) || fail(what, read.key.get(), read.found(), now);
  const SourceTensor& source = sources[static_cast<size_t>(read.source)];
  PyObject*& found = objects[base + static_cast<size_t>(read.source)];
  if (found != nullptr) return found == now || fail(what, read.key.get(), found, now);
  if (now == nullptr || reinterpret_cast<PyObject*>(Py_TYPE(now)) != source.type.get() ||
      !api.matches(now, source.meta) || api.requires_grad(now) != source.grad ||
      (source.grad && api.is_leaf(now) != source.leaf)) {
    return fail(what, read.key.get(), source.type.get(), now);
  }
  found = now;
  return true;
}

bool WeakMaker::make_weak(Ref& held) {
  if (!held) return false;
  Ref& reference = references_[held.get()];
  if (!reference) {
    reference = weak_where_noticed(held.get());
    if (!reference) return false;
    made_.push_back(reference);
  }
  held = reference;
  return true;
}

}  // namespace tatara::capture
