// What is known of an object from its type: whether it, or what it holds, may change without anybody seeing it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "capture/host/torch_api.h"
#include "capture/python/py.h"

namespace tatara::capture {

enum class Nature : uint8_t {
  kValue,      ///< it never changes, and nothing in it does: a number, a str, a dtype, a compiled pattern
  kNamed,      ///< it stands for itself: a module, class, function, torch module; who reads its parts is seen to do so
  kTensor,     ///< a tensor or an array
  kContainer,  ///< a list, dict, set, deque, cell or namespace: what it holds can be watched
  kHolder,     ///< what it holds stays, but that may change: a tuple, a partial, a view of a dict
  kObject,     ///< of a class written in Python: the virtual machine sees what its methods read
  kIterator,   ///< an iterator or generator of the interpreter's: using it changes it
  kState,      ///< memory, and types in C that nobody here knows: they may change unseen
};
Nature nature_of(PyObject* object, const TorchApi& api);

/// What an object of kind kHolder (or any that the collector knows) refers to, but its type. Borrowed.
std::vector<PyObject*> referents(PyObject* object);
/// The name of a type of `keys()`, `values()` and `items()`, of a dict or an OrderedDict.
bool is_dict_view(std::string_view type);
/// The mapping below a mappingproxy or a view of a dict; null for other objects.
PyObject* viewed_mapping(PyObject* object);
bool is_defaultdict(PyObject* object);
/// What contextvars.copy_context makes: it holds what the variables were.
bool is_context(PyObject* object);
/// A class of torch's context managers in C, but for those that change nothing that a graph could miss.
bool is_torch_guard(PyTypeObject* type);
/// What functools.lru_cache and cache make.
bool is_cached_function(PyObject* object);
/// The dict in which such a function keeps its results; null: it keeps none.
PyObject* cache_of(PyObject* function);
/// Whether `held`, a value of that dict, is the result or what a cache with a limit keeps it in.
bool is_cached(PyObject* held, PyObject* result);
/// An enum's member: a value to compare with, and an object with attributes.
bool is_enum_member(PyObject* object);
/// The nearest base of a class (the class itself, too) that is not written in Python.
const PyTypeObject* base_in_c(const PyTypeObject* type);
/// Made by a class statement or type(): its instances have no state in C but that of its bases.
bool is_python_made(const PyTypeObject* type);
/// Its equality and hash are those of `object`: it is equal to itself alone.
bool is_known_by_identity(PyObject* object);
/// The object never changes, and what it holds never does, all the way down.
bool is_unchanging(PyObject* object, const TorchApi& api, int depth = 0);

}  // namespace tatara::capture
