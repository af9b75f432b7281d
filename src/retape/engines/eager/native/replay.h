// Running recorded steps again, one level below Python: see `_replay.py`.
//
// What a span of steps reads and makes is taken from the Python records once. Its steps
// then run one after the other without the interpreter's lock, which is taken only for
// values from outside of the span and for steps that Python has to run.
#pragma once

#include "steps.h"

namespace retape {

// A storage of the span as a tensor; `own` if nobody outside of the replay knows it.
struct Root {
  at::Tensor tensor;
  bool own;
};

struct Write {
  int64_t old, made;
};

// One step: its template, or null if Python runs it, and its parts of the lists below.
struct Job {
  const Template* call;
  PyObject* index;
  bool random;
  int64_t first;
  size_t reads, writes, dying, reads_end, writes_end, dying_end;
};

// What a replay is given. All of it is Python's, borrowed for the time of one call.
struct Rerun {
  PyObject *steps, *geometries, *random, *replay, *roots, *own, *slowly;
};

class Replayer {
 public:
  Replayer(const Rerun& rerun, PyObject* needed, PyObject* wanted) : rerun_(rerun) {
    const Ref slots = Ref::checked(PySequence_Fast(wanted, "slots"));
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(slots.get()); ++k)
      wanted_.insert(as_int(PySequence_Fast_GET_ITEM(slots.get(), k)));
    const Py_ssize_t count = PyList_GET_SIZE(needed);
    jobs_.reserve(count);
    for (Py_ssize_t k = 0; k < count; ++k) read_step(PyList_GET_ITEM(needed, k));
    find_last_uses();
  }

  void run() {
    {
      const pybind11::gil_scoped_release nogil;
      for (const Job& job : jobs_) {
        if (job.call != nullptr && hits_nobody(job))
          run_step(job);
        else
          run_in_python(job);
        for (size_t k = job.dying; k < job.dying_end; ++k) table_.erase(dying_[k]);
      }
    }
    for (const int64_t slot : wanted_) give(slot, false);
  }

 private:
  void read_step(PyObject* index) {
    PyObject* step = PyList_GET_ITEM(rerun_.steps, as_int(index));
    const bool random = lookup(rerun_.random, index) != nullptr;
    Job job{template_of(step), index, random, as_int(PyTuple_GET_ITEM(step, 2)),
            reads_.size(), writes_.size(), 0, 0, 0, 0};
    PyObject* reads = reads_of(step);
    for (Py_ssize_t r = 0; r < PyTuple_GET_SIZE(reads); ++r)
      reads_.push_back(as_int(PyTuple_GET_ITEM(reads, r)));
    PyObject* writes = PyTuple_GET_ITEM(step, 3);
    for (Py_ssize_t w = 0; w < PyTuple_GET_SIZE(writes); ++w) {
      PyObject* pair = PyTuple_GET_ITEM(writes, w);
      const Write write{as_int(PyTuple_GET_ITEM(pair, 0)), as_int(PyTuple_GET_ITEM(pair, 1))};
      writes_.push_back(write);
      if (PyList_GET_ITEM(rerun_.geometries, write.old) !=
          PyList_GET_ITEM(rerun_.geometries, write.made))
        job.call = nullptr;  // it was resized
    }
    job.reads_end = reads_.size();
    job.writes_end = writes_.size();
    made_.push_back(end_of_made(step));
    jobs_.push_back(job);
  }

  // For each step the slots that nobody uses after it.
  void find_last_uses() {
    Slots seen = wanted_;
    for (size_t k = jobs_.size(); k-- > 0;) {
      Job& job = jobs_[k];
      job.dying = dying_.size();
      const auto use = [&](int64_t slot) {
        if (seen.insert(slot).second) dying_.push_back(slot);
      };
      for (size_t r = job.reads; r < job.reads_end; ++r) use(reads_[r]);
      for (int64_t slot = job.first; slot < made_[k]; ++slot) use(slot);
      job.dying_end = dying_.size();
    }
  }

  // Whether the storages that a step overwrites are known to this replay alone.
  bool hits_nobody(const Job& job) const {
    for (size_t k = job.writes; k < job.writes_end; ++k) {
      const auto found = table_.find(writes_[k].old);
      if (found == table_.end() || !found->second.own || wanted_.count(writes_[k].old))
        return false;
    }
    return true;
  }

  const at::Tensor& root_of(int64_t slot) {
    const auto found = table_.find(slot);
    if (found != table_.end()) return found->second.tensor;
    const pybind11::gil_scoped_acquire gil;
    const Ref index = number(slot);
    const Ref made = Ref::checked(
        PyObject_CallMethodOneArg(rerun_.replay, names->root_of, index.get()));
    check(PyDict_DelItem(rerun_.roots, index.get()));
    const at::Tensor& tensor = THPVariable_Unpack(made.get());
    return table_.emplace(slot, Root{tensor, false}).first->second.tensor;
  }

  void fill_stack(const Job& job) {
    const Template& call = *job.call;
    stack_.assign(call.arguments.begin(), call.arguments.end());
    for (size_t k = 0; k < call.places.size(); ++k) {
      const Place place = call.places[k];
      at::Tensor tensor = look(root_of(reads_[job.reads + k]), call.sights[k]);
      c10::IValue& argument = stack_[place.argument];
      if (place.index < 0) {
        argument = std::move(tensor);
      } else {
        if (place.index == 0) argument = c10::List<at::Tensor>();
        argument.toTensorList().push_back(std::move(tensor));
      }
    }
  }

  void run_step(const Job& job) {
    fill_stack(job);
    if (job.random) {
      const pybind11::gil_scoped_acquire gil;
      Ref::checked(PyObject_CallMethodOneArg(rerun_.replay, names->draw_as_before, job.index));
    }
    {
      if (c10::get_default_dtype() != job.call->dtype)  // Python sets it back
        c10::set_default_dtype(job.call->dtype);
      const c10::AutoGradMode mode(job.call->grad);
      job.call->op.callBoxed(&stack_);
    }
    int64_t slot = job.first;
    const auto results = results_on(stack_, stack_.size());
    for (const int64_t output : job.call->outputs)
      table_.insert_or_assign(slot++, Root{results[output].toTensor(), true});
    for (size_t k = job.writes; k < job.writes_end; ++k) {
      const auto old = table_.find(writes_[k].old);
      Root root = std::move(old->second);
      table_.erase(old);
      table_.insert_or_assign(writes_[k].made, std::move(root));
    }
    stack_.clear();
  }

  // Put a root where Python looks for it.
  void give(int64_t slot, bool with_owner) {
    const auto found = table_.find(slot);
    if (found == table_.end()) return;
    const Ref index = number(slot);
    const Ref root = Ref::checked(THPVariable_Wrap(found->second.tensor));
    check(PyDict_SetItem(rerun_.roots, index.get(), root.get()));
    if (with_owner && found->second.own) check(PySet_Add(rerun_.own, index.get()));
  }

  void run_in_python(const Job& job) {
    const pybind11::gil_scoped_acquire gil;
    for (size_t k = job.reads; k < job.reads_end; ++k) give(reads_[k], true);
    for (size_t k = job.writes; k < job.writes_end; ++k) {
      give(writes_[k].old, true);
      table_.erase(writes_[k].old);
    }
    Ref::checked(PyObject_CallOneArg(rerun_.slowly, job.index));
    PyObject *slot = nullptr, *root = nullptr;
    for (Py_ssize_t k = 0; PyDict_Next(rerun_.roots, &k, &slot, &root);) {
      const int owned = PySet_Contains(rerun_.own, slot);
      check(owned);
      table_.insert_or_assign(as_int(slot), Root{THPVariable_Unpack(root), owned == 1});
    }
    PyDict_Clear(rerun_.roots);
    check(PySet_Clear(rerun_.own));
  }

  Rerun rerun_;
  Slots wanted_;
  std::vector<Job> jobs_;
  std::vector<int64_t> reads_, dying_, made_;
  std::vector<Write> writes_;
  ska::flat_hash_map<int64_t, Root> table_;
  torch::jit::Stack stack_;
};

}  // namespace retape
