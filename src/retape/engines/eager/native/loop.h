// Front end C, one level below Python: what `_loop.py` and `_loop_sweep.py` do for
// each call. What is out of the ordinary is handed to them.
#pragma once

#include "common.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/Generator.h>

namespace retape {

inline constexpr size_t KEPT_SLOTS = 65536;

// Notes the calls of one block.
class Loop {
 public:
  Loop(PyObject* calls, PyObject* kinds, PyObject* plain, PyObject* slowly,
       PyObject* noted)
      : calls_(Ref::borrowed(calls)),
        kinds_(Ref::borrowed(kinds)),
        plain_(Ref::borrowed(plain)),
        slowly_(Ref::borrowed(slowly)),
        noted_(Ref::borrowed(noted)) {}

  // `recorder.__torch_function__(function, types, args, kwargs)`
  Ref call(PyObject* recorder, PyObject* const* given, Py_ssize_t count) {
    PyObject *function = given[0], *args = given[2];
    const bool named = count > 3 && given[3] != Py_None && PyDict_Size(given[3]) != 0;
    reads_.clear();
    bool simple = true;
    index_ = number(PyList_GET_SIZE(layout->Calls_calls(calls())));
    const bool grad = c10::GradMode::is_enabled();
    Ref noted;
    if (lookup(kinds_.get(), function) == plain_.get() && !named &&
        PyTuple_CheckExact(args) && !autocast() &&
        layout->Calls_grad(calls()) == (grad ? Py_True : Py_False))
      noted = encode(args, simple);
    if (!noted) return hand_over(recorder, given, count);
    Ref result;
    {
      const c10::AutoGradMode mode(false);
      result = Ref::checked(PyObject_Call(function, args, nullptr));
    }
    const Ref call = call_of(function, noted.get(), grad);
    if (simple) {  // numbers only, which are part of no cycle
      untrack(noted);
      untrack(call);
    }
    if (THPVariable_Check(result.get()) &&
        THPVariable_Unpack(result.get()).layout() == c10::kStrided) {
      if (!is_known(result.get())) add(call, result.get(), grad);
      return result;
    }
    const Ref reads = Ref::checked(PyList_New(0));
    for (const Ref& slot : reads_) check(PyList_Append(reads.get(), slot.get()));
    return Ref::checked(PyObject_CallFunctionObjArgs(
        noted_.get(), calls(), call.get(), reads.get(), result.get(), nullptr));
  }

 private:
  PyObject* calls() const { return calls_.get(); }

  static bool autocast() {
    const auto excluded = c10::impl::tls_local_dispatch_key_set().excluded_;
    return (excluded & c10::autocast_dispatch_keyset) != c10::autocast_dispatch_keyset;
  }

  Ref hand_over(PyObject* recorder, PyObject* const* given, Py_ssize_t count) const {
    PyObject* named = count > 3 ? given[3] : Py_None;
    return Ref::checked(PyObject_CallFunctionObjArgs(
        slowly_.get(), recorder, given[0], given[1], given[2], named, nullptr));
  }

  // The slot that this record has hung on a tensor, borrowed; or null.
  PyObject* tag_on(PyObject* tensor) const {
    const Ref tag = peek(tensor, names->_retape_call);
    if (!tag || PyTuple_GET_ITEM(tag.get(), 0) != layout->Calls__owner(calls()))
      return nullptr;
    return PyTuple_GET_ITEM(tag.get(), 1);
  }

  PyObject* foreign_slot(PyObject* tensor) const {
    const Ref id = Ref::checked(PyLong_FromVoidPtr(tensor));
    return lookup(layout->Calls__foreign_slots(calls()), id.get());
  }

  bool is_known(PyObject* tensor) const {
    if (Py_REFCNT(tensor) == 1) return false;  // nobody but us has seen it
    return tag_on(tensor) != nullptr || foreign_slot(tensor) != nullptr;
  }

  static int64_t version_of(const at::Tensor& tensor) {
    return tensor.unsafeGetTensorImpl()->version_counter().current_version();
  }

  Ref slot_of(PyObject* tensor) const {
    PyObject* slot = tag_on(tensor);
    if (slot == nullptr) slot = foreign_slot(tensor);
    const at::Tensor& value = THPVariable_Unpack(tensor);
    if (slot != nullptr && !value.is_inference() &&
        item(layout->Calls_versions(calls()), as_int(slot)) == version_of(value))
      return Ref::borrowed(slot);
    return Ref::checked(PyObject_CallMethodOneArg(calls(), names->slot_of, tensor));
  }

  // The arguments with slots for tensors; null if Python has to look at them. `simple`
  // stays true if they hold nothing else that the garbage collector cares for.
  Ref encode(PyObject* value, bool& simple) {
    if (THPVariable_Check(value)) {
      Ref slot = slot_of(value);
      reads_.push_back(slot);
      check(PyList_SetItem(
          layout->Calls_last_read(calls()), as_int(slot.get()), Ref(index_).release()));
      return slot;
    }
    const bool list = PyList_CheckExact(value);
    if (list || PyTuple_CheckExact(value)) {
      const Py_ssize_t length = PySequence_Fast_GET_SIZE(value);
      Ref made = Ref::checked(list ? PyList_New(length) : PyTuple_New(length));
      for (Py_ssize_t k = 0; k < length; ++k) {
        Ref part = encode(PySequence_Fast_GET_ITEM(value, k), simple);
        if (!part) return Ref();
        if (list) PyList_SET_ITEM(made.get(), k, part.release());
        else PyTuple_SET_ITEM(made.get(), k, part.release());
      }
      return made;
    }
    if (PyDict_Check(value) || PyAnySet_Check(value) || THPGenerator_Check(value))
      return Ref();
    simple = simple && !PyObject_IS_GC(value);
    return Ref::borrowed(value);
  }

  static Ref call_of(PyObject* function, PyObject* args, bool grad) {
    Ref call(new_instance(layout->call_type, 5));
    PyTuple_SET_ITEM(call.get(), 0, Py_NewRef(function));
    PyTuple_SET_ITEM(call.get(), 1, Py_NewRef(args));
    PyTuple_SET_ITEM(call.get(), 2, Py_NewRef(Py_None));
    PyTuple_SET_ITEM(call.get(), 3, Py_NewRef(Py_None));
    PyTuple_SET_ITEM(call.get(), 4, Py_NewRef(grad ? Py_True : Py_False));
    return call;
  }

  bool needs_gradient(const at::Tensor& tensor, bool grad) const {
    if (!grad || !(tensor.is_floating_point() || tensor.is_complex())) return false;
    PyObject* needs = layout->Calls_needs(calls());
    return std::any_of(reads_.begin(), reads_.end(), [&](const Ref& slot) {
      return PyList_GET_ITEM(needs, as_int(slot.get())) == Py_True;
    });
  }

  // A `Slot`, and what `makes` says of it. They never change: the first ones are kept.
  struct Number {
    Ref slot, place;
  };
  static Number new_number(int64_t slot) {
    const Ref made =
        Ref::checked(PyObject_CallOneArg(layout->slot_type, number(slot).get()));
    const Ref place = Ref::checked(PyTuple_Pack(2, made.get(), Py_True));
    untrack(place);
    return {made, place};
  }
  static Number slot_number(int64_t slot) {
    static auto* known = new std::vector<Number>();
    const size_t place = static_cast<size_t>(slot);
    if (place >= KEPT_SLOTS) return new_number(slot);
    if (place >= known->size()) known->resize(2 * place + 16);
    Number& kept = (*known)[place];
    if (!kept.slot) kept = new_number(slot);
    return kept;
  }

  // What `Calls.add` does for a call with a single result.
  void add(const Ref& call, PyObject* result, bool grad) {
    const at::Tensor& tensor = THPVariable_Unpack(result);
    const auto [made, place] =
        slot_number(PyList_GET_SIZE(layout->Calls_producer(calls())));
    PyObject* needs = needs_gradient(tensor, grad) ? Py_True : Py_False;
    check(PyList_Append(layout->Calls_producer(calls()), index_.get()));
    append(layout->Calls_last_read(calls()), -1);
    append(layout->Calls_nbytes(calls()), static_cast<int64_t>(tensor.nbytes()));
    check(PyList_Append(layout->Calls_needs(calls()), needs));
    append(layout->Calls_versions(calls()),
           tensor.is_inference() ? 0 : version_of(tensor));
    check(PyList_Append(layout->Calls_makes(calls()), place.get()));
    const Ref tag =
        Ref::checked(PyTuple_Pack(2, layout->Calls__owner(calls()), made.get()));
    untrack(tag);
    check(PyObject_SetAttr(result, names->_retape_call, tag.get()));
    check(PyDict_SetItem(layout->Calls__pending(calls()), made.get(), result));
    check(PyList_Append(layout->Calls_calls(calls()), call.get()));
    const Ref reads = Ref::checked(PyTuple_New(static_cast<Py_ssize_t>(reads_.size())));
    for (size_t k = 0; k < reads_.size(); ++k)
      PyTuple_SET_ITEM(reads.get(), k, Ref(reads_[k]).release());
    untrack(reads);
    check(PyList_Append(layout->Calls_reads(calls()), reads.get()));
    if (as_int(index_.get()) + 1 >= layout->Calls__next.as_number(calls()))
      Ref::checked(PyObject_CallMethodNoArgs(calls(), names->_look));
  }

  Ref calls_, kinds_, plain_, slowly_, noted_;
  c10::SmallVector<Ref, 8> reads_;
  Ref index_;  // of the present call
};

// Counts the bytes that a graph saves, each storage once.
struct Saved {
  std::unordered_set<const void*> seen;
  int64_t bytes = 0;

  void add(const at::Tensor& tensor) {
    const c10::Storage& storage = tensor.storage();
    if (seen.insert(storage.data()).second)
      bytes += static_cast<int64_t>(storage.nbytes());
  }
};

// Some calls again: `values` has the tensors by slot, `alias(slot)` those from outside.
struct LoopReplay {
  PyObject *calls, *values, *kept, *aliases, *alias, *draw;
  bool taped;

  void run(int64_t first, int64_t last) const {
    for (int64_t index = first; index < last; ++index) {
      const Ref call = Ref::borrowed(PyList_GET_ITEM(layout->Calls_calls(calls), index));
      keep(index, result_of(call.get()));
      drop(index);
    }
  }

 private:
  Ref result_of(PyObject* call) const {
    if (PyTuple_GET_ITEM(call, 3) != Py_None)
      Ref::checked(PyObject_CallOneArg(draw, PyTuple_GET_ITEM(call, 3)));
    PyObject *args = PyTuple_GET_ITEM(call, 1), *named = PyTuple_GET_ITEM(call, 2);
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(args);
    const Ref given = Ref::checked(PyTuple_New(count));
    for (Py_ssize_t k = 0; k < count; ++k)
      PyTuple_SET_ITEM(
          given.get(), k, value_of(PySequence_Fast_GET_ITEM(args, k)).release());
    Ref keywords;
    if (named != Py_None) {
      keywords = Ref::checked(PyDict_New());
      PyObject *name = nullptr, *value = nullptr;
      for (Py_ssize_t k = 0; PyDict_Next(named, &k, &name, &value);)
        check(PyDict_SetItem(keywords.get(), name, value_of(value).get()));
    }
    const c10::AutoGradMode mode(taped && PyTuple_GET_ITEM(call, 4) == Py_True);
    return Ref::checked(
        PyObject_Call(PyTuple_GET_ITEM(call, 0), given.get(), keywords.get()));
  }

  Ref value_of(PyObject* noted) const {
    if (reinterpret_cast<PyObject*>(Py_TYPE(noted)) == layout->slot_type) {
      PyObject* tensor = lookup(values, noted);
      if (tensor == nullptr) tensor = lookup(aliases, noted);
      if (tensor != nullptr) return Ref::borrowed(tensor);
      return Ref::checked(PyObject_CallOneArg(alias, noted));
    }
    const bool list = PyList_CheckExact(noted);
    if (!list && !PyTuple_CheckExact(noted)) return Ref::borrowed(noted);
    const Py_ssize_t length = PySequence_Fast_GET_SIZE(noted);
    Ref made = Ref::checked(list ? PyList_New(length) : PyTuple_New(length));
    for (Py_ssize_t k = 0; k < length; ++k) {
      PyObject* part = value_of(PySequence_Fast_GET_ITEM(noted, k)).release();
      if (list) PyList_SET_ITEM(made.get(), k, part);
      else PyTuple_SET_ITEM(made.get(), k, part);
    }
    return made;
  }

  void keep(int64_t index, const Ref& result) const {
    PyObject* place = PyList_GET_ITEM(layout->Calls_makes(calls), index);
    PyObject* slot = PyTuple_GET_ITEM(place, 0);
    if (PyTuple_GET_ITEM(place, 1) == Py_True)
      return check(PyDict_SetItem(values, slot, result.get()));
    const Ref parts = Ref::checked(PySequence_Fast(result.get(), "tensors"));
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(parts.get()); ++k)
      check(PyDict_SetItem(
          values, number(as_int(slot) + k).get(),
          PySequence_Fast_GET_ITEM(parts.get(), k)));
  }

  // Let go of what is read here for the last time.
  void drop(int64_t index) const {
    PyObject* reads = PyList_GET_ITEM(layout->Calls_reads(calls), index);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(reads); ++k) {
      PyObject* slot = PyTuple_GET_ITEM(reads, k);
      if (item(layout->Calls_last_read(calls), as_int(slot)) != index) continue;
      const int kept_on = PySet_Contains(kept, slot);
      check(kept_on);
      if (kept_on == 0 && lookup(values, slot) != nullptr)
        check(PyDict_DelItem(values, slot));
    }
  }
};

}  // namespace retape
