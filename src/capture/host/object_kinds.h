// Questions about single objects: what kind they are, and whether two are the same.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "capture/host/torch_api.h"
#include "capture/python/py.h"

namespace tatara::capture {

/// Values that are guarded by value: numbers, strings, dtypes, enum members, ...
bool is_atom(PyObject* object, const TorchApi& api);
/// A float or complex that equals itself alone by its identity (as a key, in a search).
bool is_not_a_number(PyObject* object);
/// Objects that stand for themselves: modules, functions, types, torch.nn modules.
bool is_pinned_kind(PyObject* object, const TorchApi& api);
/// A function in Python without attributes of its own.
bool is_plain_function(PyObject* object);
/// Such a function, of this code and with these globals.
bool is_of_code(PyObject* object, PyObject* code, PyObject* globals);
/// What functions of one code differ in: defaults, defaults of keywords, cells; some may be null.
std::array<PyObject*, 3> parts_of_function(PyObject* function);
/// A function in C, or a method of a type in C that is bound: a call's first argument is not the object.
bool is_bound_in_c(PyObject* callable);
/// What a method in C is bound to; null for functions, what is bound to a class and all else.
PyObject* bound_to(PyObject* object);
bool is_random_generator(PyObject* object);  // torch.Generator
bool is_partial(PyObject* object);           // of functools
bool is_torch_size(const PyTypeObject* type);
inline bool is_ordered_dict(PyObject* object) { return PyObject_TypeCheck(object, &PyODict_Type) != 0; }
/// The keys of an OrderedDict in its order, which its dict does not know; empty for other dicts and for one key.
std::vector<Ref> ordered_keys(PyObject* dict);
/// Whether that is their order still.
bool is_ordered_by(PyObject* dict, const std::vector<Ref>& keys);
/// Same object, or an equal atom of the same type.
bool same_value(PyObject* a, PyObject* b);
bool is_namespace(PyObject* object);  // of types.SimpleNamespace itself
/// Instances whose attributes live in a __dict__ and nowhere else.
bool is_plain_instance(PyObject* object);
/// One of an instance's slots (`__slots__`): its place in the instance, which may hold null.
struct InstanceSlot {
  const char* name;
  Py_ssize_t offset;
  PyObject*& of(PyObject* object) const {
    return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset);
  }
};
/// The slots of an instance of Python's classes that has all its attributes there; empty where it has others, or none.
std::vector<InstanceSlot> instance_slots(PyObject* object);
inline bool is_slotted_instance(PyObject* object) { return !instance_slots(object).empty(); }
/// Iterators of the language's own containers and of range, zip and the like.
bool is_builtin_iterator(PyObject* object);
/// Iterators and generators whose __next__ is C code.
bool is_c_iterator(PyObject* object);
/// A generator of np.random's, of either kind.
bool is_numpy_generator(PyObject* object);
/// random.Random itself, and no class that a program makes of it.
bool is_python_random_class(PyObject* type);
/// Made by a class statement: types in C may be on the heap too, but are immutable there.
bool is_python_class(const PyTypeObject* type);
/// For messages: the object's repr, cut short.
std::string short_repr(PyObject* object);

}  // namespace tatara::capture
