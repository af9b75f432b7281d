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

inline Ref member(const Ref& object, const char* name) {
  return Ref::checked(PyObject_GetAttrString(object.get(), name));
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
  // For attributes that are integers.
  int64_t as_number(PyObject* object) const { return as_int(*place(object)); }
  void add(PyObject* object, int64_t more) const {
    set(object, number(as_number(object) + more));
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

inline void append(PyObject* list, const Ref& value) {
  check(PyList_Append(list, value.get()));
}

inline void put(PyObject* list, int64_t index, Ref value) {
  check(PyList_SetItem(list, index, value.release()));
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

// One more in a table of counts; whether it is the first.
inline bool count_up(PyObject* counts, PyObject* key) {
  PyObject* before = lookup(counts, key);
  const int64_t now = before == nullptr ? 1 : as_int(before) + 1;
  check(PyDict_SetItem(counts, key, number(now).get()));
  return before == nullptr;
}

// One less; whether it was the last.
inline bool count_down(PyObject* counts, PyObject* key) {
  PyObject* before = lookup(counts, key);
  TORCH_CHECK(before != nullptr, "what nobody counts is counted down");
  const int64_t left = as_int(before) - 1;
  check(left ? PyDict_SetItem(counts, key, number(left).get()) : PyDict_DelItem(counts, key));
  return left == 0;
}

// Interned names and the layout of the Python classes, read once.
struct Names {
#define RETAPE_NAMES(X)                                                            \
  X(_retape) X(relieve) X(needed_by_snapshot) X(before_write) X(of)                \
  X(pack) X(adopt) X(root_of) X(drop_from_tail) X(let_go) X(acquire) X(release)    \
  X(about_to_draw) X(draw_as_before)
#define RETAPE_DECLARE(name) PyObject* name = PyUnicode_InternFromString(#name);
  RETAPE_NAMES(RETAPE_DECLARE)
#undef RETAPE_DECLARE
};

// `X(class, attribute)`: where an attribute lies in an instance.
#define RETAPE_SLOTS(X)                                                            \
  X(Buffer, owner) X(Buffer, slot) X(Buffer, nbytes) X(Buffer, counter)            \
  X(Buffer, uninitialised) X(Buffer, older) X(Buffer, version) X(Counter, live)    \
  X(Counter, peak) X(ForeignView, geometry) X(ForeignView, known) X(Handle, run)   \
  X(Handle, slot) X(Handle, geometry) X(Handle, number)                            \
  X(Holdings, counts) X(Holdings, storages) X(Run, alive) X(Run, living)           \
  X(Run, lock) X(Run, recording) X(Run, slot_handles) X(Run, stages)               \
  X(Run, trace) X(Snapshot, position) X(RecomputedValues, high)                    \
  X(RecomputedValues, left) X(RecomputedValues, low) X(Tail, nbytes)               \
  X(Tail, partial) X(Tail, steps) X(Tail, windows) X(Geometry, native)             \
  X(Note, filled_as) X(Note, input) X(Signature, native) X(Trace, held)            \
  X(Trace, latest) X(Trace, limit) X(Trace, next_cut) X(Trace, notes)              \
  X(Trace, opaque) X(Trace, opened) X(Trace, saved) X(Trace, section)              \
  X(Trace, shared) X(Trace, tail)

struct Layout {
  PyObject *step_type, *foreign_type, *view_type, *python_handle_type;
  PyObject *buffer_type = nullptr, *handle_type = nullptr;  // the compiled kinds
#define RETAPE_DECLARE(type, name) Slot type##_##name;
  RETAPE_SLOTS(RETAPE_DECLARE)
#undef RETAPE_DECLARE
  Ref empty_tuple;

  explicit Layout(PyObject* types)
      : step_type(find(types, "Step")),
        foreign_type(find(types, "Input")),
        view_type(find(types, "ForeignView")),
        python_handle_type(find(types, "Handle")),
#define RETAPE_PLACE(type, name) type##_##name(find(types, #type), #name),
        RETAPE_SLOTS(RETAPE_PLACE)
#undef RETAPE_PLACE
        empty_tuple(PyTuple_New(0)) {}

 private:
  static PyObject* find(PyObject* types, const char* name) {
    PyObject* found = PyDict_GetItemString(types, name);
    TORCH_CHECK(found != nullptr, name, ": no such class");
    return found;
  }
};

inline Names* names = nullptr;
inline Layout* layout = nullptr;

inline PyObject* new_instance(PyObject* type, Py_ssize_t items = 0) {
  auto* kind = reinterpret_cast<PyTypeObject*>(type);
  PyObject* made = kind->tp_alloc(kind, items);
  if (made == nullptr) fail();
  return made;
}

// What Python holds for us; it is deleted with the capsule.
template <typename T>
Ref capsule(T* made, const char* name) {
  return Ref::checked(PyCapsule_New(made, name, [](PyObject* self) {
    delete static_cast<T*>(PyCapsule_GetPointer(self, PyCapsule_GetName(self)));
  }));
}

// The garbage collector need not look at an object that is part of no cycle.
inline void untrack(const Ref& object) { PyObject_GC_UnTrack(object.get()); }

}  // namespace retape
