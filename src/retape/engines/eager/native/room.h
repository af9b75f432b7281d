// The bytes that running recorded steps again holds at once: see `_room.py`.
#pragma once

#include "steps.h"

namespace retape {

class Room {
 public:
  Room(const Record& record, PyObject* nbytes, PyObject* needed, PyObject* wanted)
      : record_(record), nbytes_(nbytes), needed_(needed) {
    const Ref slots = Ref::checked(PySequence_List(wanted));
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(slots.get()); ++k)
      wanted_.insert(item(slots.get(), k));
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(needed_); ++k) {
      PyObject* reads = Record::reads(step(k));
      for (Py_ssize_t r = 0; r < PyTuple_GET_SIZE(reads); ++r)
        last_read_[as_int(PyTuple_GET_ITEM(reads, r))] = k;
    }
  }

  // The most bytes at once, what is held before left out.
  int64_t most() {
    int64_t most = 0;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(needed_); ++k) {
      Facts otherwise;
      const Facts& facts = facts_of(step(k), otherwise);
      const Made made = made_by(step(k), facts);
      take_over(step(k));
      for (int64_t slot = made.first; slot < made.last; ++slot) add(slot);
      most = std::max(most, live_ + kernel(step(k), facts, made));
      PyObject* reads = Record::reads(step(k));
      for (Py_ssize_t r = 0; r < PyTuple_GET_SIZE(reads); ++r)
        drop(as_int(PyTuple_GET_ITEM(reads, r)), k);
      for (int64_t slot = made.first; slot < made.last; ++slot) drop(slot, k);
    }
    return most;
  }

 private:
  PyObject* step(Py_ssize_t k) const { return record_.step(item(needed_, k)); }

  void add(int64_t slot) {
    if (alive_.insert(slot).second) live_ += item(nbytes_, slot);
  }

  void drop(int64_t slot, Py_ssize_t k) {
    const auto last = last_read_.find(slot);
    if (last == last_read_.end() || last->second <= k) let_go(slot);
  }

  void let_go(int64_t slot) {
    if (wanted_.count(slot) == 0 && alive_.erase(slot) != 0) live_ -= item(nbytes_, slot);
  }

  // The storages that a step writes its result into, if they are this replay's alone.
  void take_over(PyObject* step) {
    PyObject* writes = PyTuple_GET_ITEM(step, 3);
    for (Py_ssize_t w = 0; w < PyTuple_GET_SIZE(writes); ++w) {
      PyObject* pair = PyTuple_GET_ITEM(writes, w);
      const int64_t old = as_int(PyTuple_GET_ITEM(pair, 0));
      const int64_t made = as_int(PyTuple_GET_ITEM(pair, 1));
      if (item(nbytes_, old) == item(nbytes_, made)) let_go(old);
    }
  }

  int64_t kernel(PyObject* step, const Facts& facts, const Made& made) const {
    if (!facts.copying) return facts.workspace;
    Slots touched;
    PyObject* reads = Record::reads(step);
    for (Py_ssize_t r = 0; r < PyTuple_GET_SIZE(reads); ++r)
      touched.insert(as_int(PyTuple_GET_ITEM(reads, r)));
    for (int64_t slot = made.first; slot < made.last; ++slot) touched.insert(slot);
    int64_t copies = facts.workspace - facts.scratch_bytes;
    for (const int64_t slot : touched) copies += item(nbytes_, slot);
    return copies;
  }

  Record record_;
  PyObject *nbytes_, *needed_;
  Slots wanted_, alive_;
  ska::flat_hash_map<int64_t, Py_ssize_t> last_read_;
  int64_t live_ = 0;
};

}  // namespace retape
