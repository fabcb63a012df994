// Objects whose end the program notices: those with a __del__, those that a weak reference with a callback watches, and
// generators that have code to run when they are closed. A trace keeps what it saw alive until it ends, and a graph makes no
// object that only lives inside of it: such objects must be made, and must end, outside of graphs, or at their own moment.
#pragma once

#include <Python.h>

#include <string>

#include "capture/python/py.h"

namespace tatara::capture {

struct Entry;
class ObjectGuards;

/// The class has a __del__.
bool has_finalizer(PyTypeObject* type);
/// Whether entries hold it weakly, since the program notices its end or may come to notice it: an instance of the program's
/// classes, but no module, where its class has weak references.
bool is_held_weakly(PyObject* object);
/// A weak reference of ours to such an object. Null (no error) for others.
Ref weak_where_noticed(PyObject* object);
/// A generator that waits inside of a try or with statement which notices that it is closed.
bool runs_code_when_closed(PyObject* object);
/// A generator that may do so later.
bool may_run_code_when_closed(PyObject* object);
/// Whether the program notices the end of this very object; with `asked`, also where it has to ask (a plain weak reference).
bool end_is_noticed(PyObject* object, bool asked = true);
/// The same for what may end with it: the items of a container, the attributes of an instance.
bool end_is_noticed_below(PyObject* object, int depth = 3, bool asked = true);
/// A weak reference with a callback of the program's, which is not called where the reference itself has ended before.
bool stops_a_callback(PyObject* object);
/// Why an entry with these object guards can't be: it would keep a container, and with it something that ends when the program drops
/// the container. The entry is then one that keeps nothing. Empty: it can.
std::string keeps_noticed(Entry& entry, ObjectGuards& object_guards);

}  // namespace tatara::capture
