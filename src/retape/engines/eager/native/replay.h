// Running recorded steps again, one level below Python: see `_replay.py`.
#pragma once

#include "signature.h"

namespace retape {

// The lists of a trace that a replay reads, borrowed for the time of one call.
struct Record {
  PyObject *steps, *producer, *storages;

  int64_t made_by(PyObject* slot) const { return item(producer, as_int(slot)); }
  PyObject* step(int64_t index) const { return PyList_GET_ITEM(steps, index); }
  static PyObject* reads(PyObject* step) { return PyTuple_GET_ITEM(step, 1); }
};

// Steps at or after `floor` that make the wanted slots, in order.
inline Ref needed_steps(const Record& record, PyObject* wanted, int64_t floor) {
  std::vector<PyObject*> stack;  // borrowed: the trace and the caller hold them
  std::vector<bool> found(PyList_GET_SIZE(record.steps), false);
  const auto push = [&](PyObject* slot) {
    if (lookup(record.storages, slot) == nullptr) stack.push_back(slot);
  };
  const Ref slots = Ref::checked(PySequence_Fast(wanted, "slots"));
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(slots.get()); ++k)
    push(PySequence_Fast_GET_ITEM(slots.get(), k));
  int64_t least = static_cast<int64_t>(found.size()), most = -1;
  while (!stack.empty()) {
    const int64_t step = record.made_by(stack.back());
    stack.pop_back();
    if (step < floor || found[step]) continue;
    found[step] = true;
    least = std::min(least, step);
    most = std::max(most, step);
    PyObject* reads = Record::reads(record.step(step));
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(reads); ++k)
      push(PyTuple_GET_ITEM(reads, k));
  }
  Ref needed = Ref::checked(PyList_New(0));
  for (int64_t step = least; step <= most; ++step)
    if (found[step]) append(needed.get(), step);
  return needed;
}

// One replay: a table from slots to their tensors, and when each is needed last.
struct Rerun {
  Record record;
  PyObject *replay, *roots, *own, *random, *wanted;
};

inline Template* template_of(PyObject* step) {
  const Ref found = attribute(PyTuple_GET_ITEM(step, 0), names->native);
  if (found.get() == Py_None) return nullptr;
  return static_cast<Template*>(PyCapsule_GetPointer(found.get(), TEMPLATE));
}

inline bool contains(PyObject* set, PyObject* slot) {
  const int found = PySet_Contains(set, slot);
  check(found);
  return found == 1;
}

// Whether a step can be run here: no random state, and its overwrites hit nobody else.
inline bool ordinary(const Rerun& rerun, PyObject* step, PyObject* index) {
  if (lookup(rerun.random, index) != nullptr) return false;
  PyObject* writes = PyTuple_GET_ITEM(step, 3);
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(writes); ++k) {
    PyObject* old = PyTuple_GET_ITEM(PyTuple_GET_ITEM(writes, k), 0);
    if (!contains(rerun.own, old) || contains(rerun.wanted, old)) return false;
  }
  return true;
}

inline void keep_root(const Rerun& rerun, int64_t slot, const at::Tensor& tensor) {
  const Ref index = number(slot), root = Ref::checked(THPVariable_Wrap(tensor));
  check(PyDict_SetItem(rerun.roots, index.get(), root.get()));
  check(PySet_Add(rerun.own, index.get()));
}

inline at::Tensor root_of(const Rerun& rerun, PyObject* slot) {
  PyObject* root = lookup(rerun.roots, slot);
  if (root != nullptr) return THPVariable_Unpack(root);
  const Ref made =
      Ref::checked(PyObject_CallMethodOneArg(rerun.replay, names->root_of, slot));
  return THPVariable_Unpack(made.get());
}

inline torch::jit::Stack arguments_of(
    const Rerun& rerun, const Template& call, PyObject* step) {
  torch::jit::Stack stack = call.arguments;
  PyObject* reads = Record::reads(step);
  for (size_t k = 0; k < call.places.size(); ++k) {
    const Place place = call.places[k];
    at::Tensor tensor = look(root_of(rerun, PyTuple_GET_ITEM(reads, k)), call.sights[k]);
    c10::IValue& argument = stack[place.argument];
    if (place.index < 0) {
      argument = std::move(tensor);
    } else {
      if (place.index == 0) argument = c10::List<at::Tensor>();
      argument.toTensorList().push_back(std::move(tensor));
    }
  }
  return stack;
}

// Signatures are shared by calls that Python cannot tell apart.
inline bool fits(const Template& call, PyObject* step) {
  return static_cast<Py_ssize_t>(call.places.size()) ==
      PyTuple_GET_SIZE(Record::reads(step));
}

inline void run_step(const Rerun& rerun, const Template& call, PyObject* step) {
  torch::jit::Stack stack = arguments_of(rerun, call, step);
  {
    const pybind11::gil_scoped_release nogil;
    const c10::AutoGradMode mode(call.grad);
    call.op.callBoxed(&stack);
  }
  PyObject* signature = PyTuple_GET_ITEM(step, 0);
  int64_t slot = as_int(PyTuple_GET_ITEM(step, 2));
  const Ref outputs = attribute(signature, names->outputs);
  const bool list = stack.size() == 1 && stack[0].isTensorList();
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(outputs.get()); ++k) {
    const int64_t output = as_int(PyTuple_GET_ITEM(outputs.get(), k));
    keep_root(rerun, slot++, list ? stack[0].toTensorVector()[output]
                                  : stack[output].toTensor());
  }
  PyObject* writes = PyTuple_GET_ITEM(step, 3);
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(writes); ++k) {
    PyObject* pair = PyTuple_GET_ITEM(writes, k);
    PyObject *old = PyTuple_GET_ITEM(pair, 0), *made = PyTuple_GET_ITEM(pair, 1);
    const Ref root = Ref::borrowed(lookup(rerun.roots, old));
    check(PyDict_SetItem(rerun.roots, made, root.get()));
    check(PyDict_DelItem(rerun.roots, old));
    check(PySet_Add(rerun.own, made));
  }
}

// For each step of `needed` the slots that nobody reads after it.
inline std::vector<std::vector<int64_t>> last_uses(
    const Rerun& rerun, PyObject* needed) {
  const Py_ssize_t count = PyList_GET_SIZE(needed);
  std::vector<std::vector<int64_t>> dying(count);
  std::unordered_set<int64_t> seen;
  const Ref wanted = Ref::checked(PySequence_Fast(rerun.wanted, "slots"));
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(wanted.get()); ++k)
    seen.insert(as_int(PySequence_Fast_GET_ITEM(wanted.get(), k)));
  for (Py_ssize_t k = count - 1; k >= 0; --k) {
    PyObject* step = rerun.record.step(item(needed, k));
    const auto use = [&](int64_t slot) {
      if (seen.insert(slot).second) dying[k].push_back(slot);
    };
    PyObject* reads = Record::reads(step);
    for (Py_ssize_t r = 0; r < PyTuple_GET_SIZE(reads); ++r)
      use(as_int(PyTuple_GET_ITEM(reads, r)));
    const Ref outputs = attribute(PyTuple_GET_ITEM(step, 0), names->outputs);
    const int64_t made = PyTuple_GET_SIZE(outputs.get()) +
        PyTuple_GET_SIZE(PyTuple_GET_ITEM(step, 3));
    const int64_t first = as_int(PyTuple_GET_ITEM(step, 2));
    for (int64_t slot = first; slot < first + made; ++slot) use(slot);
  }
  return dying;
}

// Run steps; what is out of the ordinary is run by `slowly(index)`, a Python function.
inline void run_steps(const Rerun& rerun, PyObject* needed, PyObject* slowly) {
  const auto dying = last_uses(rerun, needed);
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(needed); ++k) {
    PyObject* index = PyList_GET_ITEM(needed, k);
    PyObject* step = rerun.record.step(as_int(index));
    const Template* call = template_of(step);
    if (call != nullptr && fits(*call, step) && ordinary(rerun, step, index))
      run_step(rerun, *call, step);
    else
      Ref::checked(PyObject_CallOneArg(slowly, index));
    for (const int64_t slot : dying[k]) {
      const Ref dead = number(slot);
      if (lookup(rerun.roots, dead.get()) != nullptr)
        check(PyDict_DelItem(rerun.roots, dead.get()));
    }
  }
}

}  // namespace retape
