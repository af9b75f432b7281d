// The compiled kinds of `Buffer` and `Handle`: the same attributes at the same places,
// but destroyed without Python, and no business of the garbage collector, since neither
// is part of a cycle.
#pragma once

#include "common.h"

namespace retape {

inline void free_instance(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  for (Py_ssize_t place = sizeof(PyObject); place < type->tp_basicsize;
       place += sizeof(PyObject*))
    Py_CLEAR(*reinterpret_cast<PyObject**>(reinterpret_cast<char*>(self) + place));
  type->tp_free(self);
  Py_DECREF(type);
}

// A class with the attributes in `__slots__` of a Python class, and a destructor.
inline PyObject* compiled_kind(PyObject* like, const char* name, destructor destroy) {
  const Ref attributes = Ref::checked(PyObject_GetAttrString(like, "__slots__"));
  const Ref slots = Ref::checked(PySequence_Fast(attributes.get(), "slots"));
  std::vector<PyMemberDef> members;
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(slots.get()); ++k) {
    PyObject* slot = Py_NewRef(PySequence_Fast_GET_ITEM(slots.get(), k));  // kept: its text
    const Ref member = Ref::checked(PyObject_GetAttr(like, slot));
    const auto* descriptor = reinterpret_cast<PyMemberDescrObject*>(member.get());
    members.push_back(
        {PyUnicode_AsUTF8(slot), T_OBJECT_EX, descriptor->d_member->offset, 0, nullptr});
  }
  members.push_back({nullptr, 0, 0, 0, nullptr});
  PyType_Slot parts[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
      {Py_tp_members, members.data()},
      {0, nullptr}};
  const auto size = static_cast<int>(reinterpret_cast<PyTypeObject*>(like)->tp_basicsize);
  PyType_Spec spec{name, size, 0, Py_TPFLAGS_DEFAULT, parts};
  return Ref::checked(PyType_FromSpec(&spec)).release();
}

// The storage that it was hung on has died: its bytes are free.
inline void destroy_buffer(PyObject* self) {
  PyObject* counter = layout->Buffer_counter(self);
  if (counter != nullptr)
    layout->Counter_live.add(counter, -layout->Buffer_nbytes.as_number(self));
  free_instance(self);
}

// The writes that PyTorch has counted.
inline int64_t writes_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

// Account for writes that PyTorch is about to count.
inline void count_writes(PyObject* buffer, const at::Tensor& tensor, int64_t more) {
  const int64_t known = layout->Buffer_version.as_number(buffer);
  layout->Buffer_version.set(buffer, number(std::max(known, writes_of(tensor) + more)));
}

// A buffer for a storage without one, counted as alive.
inline void hang_buffer(
    const at::Tensor& tensor, PyObject* storage, const Ref& owner, const Ref& counter,
    Ref slot, Ref bytes, bool uninitialised = false) {
  const Ref buffer(new_instance(layout->buffer_type));
  layout->Counter_live.add(counter.get(), as_int(bytes.get()));
  layout->Buffer_nbytes.set(buffer.get(), std::move(bytes));
  layout->Buffer_owner.set(buffer.get(), owner);
  layout->Buffer_slot.set(buffer.get(), std::move(slot));
  layout->Buffer_uninitialised.set(buffer.get(), Ref(PyBool_FromLong(uninitialised)));
  layout->Buffer_older.set(buffer.get(), layout->empty_tuple);
  layout->Buffer_counter.set(buffer.get(), counter);
  layout->Buffer_version.set(buffer.get(), number(writes_of(tensor)));
  check(PyObject_SetAttr(storage, names->_retape, buffer.get()));
}

// The buffer on a storage, whosever it is, borrowed from it; or null.
inline PyObject* any_buffer_on(PyObject* storage) {
  PyObject* found = nullptr;
#if PY_VERSION_HEX >= 0x030D0000
  check(PyObject_GetOptionalAttr(storage, names->_retape, &found));
#else
  check(_PyObject_LookupAttr(storage, names->_retape, &found));
#endif
  return Ref(found).get();
}

// Add a holder of a slot; the first storage given for it stays.
inline void hold(PyObject* holdings, PyObject* slot, PyObject* storage) {
  if (count_up(layout->Holdings_counts(holdings), slot))
    check(PyDict_SetItem(layout->Holdings_storages(holdings), slot, storage));
}

// Hold the storages of tensors that were computed again, by slot.
inline void hold_computed(
    const Ref& owner, const Ref& counter, PyObject* holdings, PyObject* computed) {
  PyObject *slot = nullptr, *root = nullptr;
  for (Py_ssize_t k = 0; PyDict_Next(computed, &k, &slot, &root);) {
    const at::Tensor& tensor = THPVariable_Unpack(root);
    const Ref storage = Ref::checked(THPStorage_Wrap(tensor.storage()));
    if (any_buffer_on(storage.get()) == nullptr)
      hang_buffer(
          tensor, storage.get(), owner, counter, Ref::borrowed(slot),
          number(static_cast<int64_t>(tensor.storage().nbytes())));
    hold(holdings, slot, storage.get());
  }
}

// Take one holder of a slot away.
inline void release(PyObject* holdings, PyObject* slot) {
  if (count_down(layout->Holdings_counts(holdings), slot))
    check(PyObject_DelItem(layout->Holdings_storages(holdings), slot));
}

}  // namespace retape
