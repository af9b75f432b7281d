// What the parts of the accelerator share: references, slots of Python objects, errors.
//
// The accelerator does what the Python modules of the same names do, on the same Python
// objects, for the common cases; whatever is uncommon it hands to them.
#pragma once

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/torch_dispatch_mode.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <structmember.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace retape {

[[noreturn]] inline void fail() {
  python_error error;
  error.persist();
  throw error;
}

// A strong reference.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  static Ref checked(PyObject* owned) {
    if (owned == nullptr) fail();
    return Ref(owned);
  }
  static Ref borrowed(PyObject* object) { return Ref(Py_XNewRef(object)); }
  Ref(const Ref& other) : object_(Py_XNewRef(other.object_)) {}
  Ref(Ref&& other) noexcept : object_(other.release()) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() {
    PyObject* object = object_;
    object_ = nullptr;
    return object;
  }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

inline void check(int status) {
  if (status < 0) fail();
}

inline int64_t as_int(PyObject* number) {
  const auto value = PyLong_AsLongLong(number);
  if (value == -1 && PyErr_Occurred()) fail();
  return value;
}

inline Ref number(int64_t value) { return Ref::checked(PyLong_FromLongLong(value)); }

inline Ref attribute(PyObject* object, PyObject* name) {
  return Ref::checked(PyObject_GetAttr(object, name));
}

inline int64_t int_attribute(PyObject* object, PyObject* name) {
  return as_int(attribute(object, name).get());
}

inline void add_to_attribute(PyObject* object, PyObject* name, int64_t more) {
  const Ref sum = number(int_attribute(object, name) + more);
  check(PyObject_SetAttr(object, name, sum.get()));
}

// An attribute in `__slots__`, reached by its offset.
class Slot {
 public:
  Slot() = default;
  Slot(PyObject* type, const char* name) {
    const Ref member = Ref::checked(PyObject_GetAttrString(type, name));
    TORCH_CHECK(Py_IS_TYPE(member.get(), &PyMemberDescr_Type), name, ": no slot");
    auto* descriptor = reinterpret_cast<PyMemberDescrObject*>(member.get());
    offset_ = descriptor->d_member->offset;
  }
  PyObject* operator()(PyObject* object) const { return *place(object); }
  void set(PyObject* object, Ref value) const {
    PyObject* before = *place(object);
    *place(object) = value.release();
    Py_XDECREF(before);
  }

 private:
  PyObject** place(PyObject* object) const {
    return reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset_);
  }
  Py_ssize_t offset_ = 0;
};

inline void append(PyObject* list, int64_t value) {
  check(PyList_Append(list, number(value).get()));
}

inline void put(PyObject* list, int64_t index, int64_t value) {
  check(PyList_SetItem(list, index, number(value).release()));
}

inline int64_t item(PyObject* list, int64_t index) {
  return as_int(PyList_GET_ITEM(list, index));
}

// `dict[key]`, borrowed, or null.
inline PyObject* lookup(PyObject* dict, PyObject* key) {
  PyObject* found = PyDict_GetItemWithError(dict, key);
  if (found == nullptr && PyErr_Occurred()) fail();
  return found;
}

inline bool has(PyObject* dict, PyObject* key) {
  const int found = PyDict_Contains(dict, key);
  check(found);
  return found == 1;
}

// Interned names and the layout of the Python classes, read once.
struct Names {
#define RETAPE_NAMES(X)                                                            \
  X(_retape) X(paused) X(opened) X(position) X(limit) X(next_cut) X(latest)        \
  X(relieve) X(native) X(needed_by_snapshot) X(before_write) X(_after_writes)     \
  X(of) X(nbytes) X(saved) X(living) X(append) X(func) X(outputs) X(single)        \
  X(root) X(grad) X(pack) X(moved) X(older) X(live) X(adopt)           \
  X(root_of) X(trace) X(tail) X(partial) X(held) X(storages) X(stages) X(low)      \
  X(high) X(left) X(release) X(slot_handles) X(steps) X(drop_from_tail) X(alive)    \
  X(differentiable) X(kind) X(lean) X(copying)
#define RETAPE_DECLARE(name) PyObject* name = PyUnicode_InternFromString(#name);
  RETAPE_NAMES(RETAPE_DECLARE)
#undef RETAPE_DECLARE
};

struct Layout {
  PyObject *buffer_type, *handle_type, *step_type;
  Slot buffer_owner, buffer_slot, buffer_nbytes, buffer_counter, buffer_uninitialised,
      buffer_older, counter_live, handle_run, handle_slot, handle_geometry,
      handle_number;
  Ref empty_tuple;

  Layout(PyObject* buffer, PyObject* counter, PyObject* handle, PyObject* step)
      : buffer_type(Py_NewRef(buffer)),
        handle_type(Py_NewRef(handle)),
        step_type(Py_NewRef(step)),
        buffer_owner(buffer, "owner"),
        buffer_slot(buffer, "slot"),
        buffer_nbytes(buffer, "nbytes"),
        buffer_counter(buffer, "counter"),
        buffer_uninitialised(buffer, "uninitialised"),
        buffer_older(buffer, "older"),
        counter_live(counter, "live"),
        handle_run(handle, "run"),
        handle_slot(handle, "slot"),
        handle_geometry(handle, "geometry"),
        handle_number(handle, "number"),
        empty_tuple(PyTuple_New(0)) {}
};

inline Names* names = nullptr;
inline Layout* layout = nullptr;

inline PyObject* new_instance(PyObject* type, Py_ssize_t items = 0) {
  auto* kind = reinterpret_cast<PyTypeObject*>(type);
  PyObject* made = kind->tp_alloc(kind, items);
  if (made == nullptr) fail();
  return made;
}

}  // namespace retape
