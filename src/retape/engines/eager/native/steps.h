// The recorded steps of a trace, as the replay and its analysis read them.
#pragma once

#include "signature.h"

#include <c10/util/flat_hash_map.h>

namespace retape {

using Slots = ska::flat_hash_set<int64_t>;

inline PyObject* reads_of(PyObject* step) { return PyTuple_GET_ITEM(step, 1); }

// The template of a step, or null if it has none or not this one: signatures are shared
// by calls that Python cannot tell apart.
inline const Template* template_of(PyObject* step) {
  PyObject* found = layout->Signature_native(PyTuple_GET_ITEM(step, 0));
  if (found == Py_None) return nullptr;
  const auto* call =
      static_cast<const Template*>(PyCapsule_GetPointer(found, TEMPLATE));
  const auto reads = static_cast<size_t>(PyTuple_GET_SIZE(reads_of(step)));
  return call->places.size() == reads ? call : nullptr;
}

// Behind the slots that a step makes: its new storages first, then its overwrites.
inline int64_t end_of_made(PyObject* step) {
  const Ref outputs = member(Ref::borrowed(PyTuple_GET_ITEM(step, 0)), "outputs");
  return as_int(PyTuple_GET_ITEM(step, 2)) + PyTuple_GET_SIZE(outputs.get()) +
         PyTuple_GET_SIZE(PyTuple_GET_ITEM(step, 3));
}

// Steps that make the wanted slots, in order.
inline Ref needed_steps(
    PyObject* steps, PyObject* producer, PyObject* storages, PyObject* wanted) {
  std::vector<PyObject*> stack;  // borrowed: the trace and the caller hold them
  std::vector<bool> found(PyList_GET_SIZE(steps), false);
  const auto push = [&](PyObject* slot) {
    if (lookup(storages, slot) == nullptr) stack.push_back(slot);
  };
  const Ref slots = Ref::checked(PySequence_Fast(wanted, "slots"));
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(slots.get()); ++k)
    push(PySequence_Fast_GET_ITEM(slots.get(), k));
  int64_t least = static_cast<int64_t>(found.size()), most = -1;
  while (!stack.empty()) {
    const int64_t step = item(producer, as_int(stack.back()));
    stack.pop_back();
    if (step < 0 || found[step]) continue;
    found[step] = true;
    least = std::min(least, step);
    most = std::max(most, step);
    PyObject* reads = reads_of(PyList_GET_ITEM(steps, step));
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(reads); ++k)
      push(PyTuple_GET_ITEM(reads, k));
  }
  Ref needed = Ref::checked(PyList_New(0));
  for (int64_t step = least; step <= most; ++step)
    if (found[step]) append(needed.get(), step);
  return needed;
}

}  // namespace retape
