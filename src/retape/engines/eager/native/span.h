// The sums of `Span`: bytes that cross each position, and the margins of a stage.
#pragma once

#include "steps.h"

namespace retape {

struct SpanInput {
  Record record;
  PyObject *nbytes, *last_read, *apart, *needed, *wanted;
  int64_t start, end;
  PyObject* waiting;  // from start to end
};

// For each step, the bytes made before it and read by it or after it, those left out
// that get no cotangent.
inline std::vector<int64_t> waiting_bytes(
    PyObject* record, PyObject* producer, PyObject* last_read, PyObject* nbytes) {
  const int64_t steps = PyList_GET_SIZE(record);
  std::vector<int64_t> waiting(steps + 2, 0);
  for (Py_ssize_t slot = 0; slot < PyList_GET_SIZE(producer); ++slot) {
    const int64_t made = item(producer, slot), read = item(last_read, slot);
    if (made < 0 || read <= made) continue;
    Facts otherwise;
    if (facts_of(PyList_GET_ITEM(record, made), otherwise).passive) continue;
    waiting[made + 1] += item(nbytes, slot);
    waiting[std::min(read, steps) + 1] -= item(nbytes, slot);
  }
  for (size_t k = 1; k < waiting.size(); ++k) waiting[k] += waiting[k - 1];
  return waiting;
}

struct SpanSums {
  std::vector<int64_t> widths;
  int64_t transient = 0, reverse = 0;
};

using Uses = ska::flat_hash_map<int64_t, int64_t>;

// The last step that uses each slot of the span, autograd's wish for it included.
inline Uses last_uses(const SpanInput& span) {
  Uses uses;
  PyObject *slot = nullptr, *step = nullptr;
  for (Py_ssize_t k = 0; PyDict_Next(span.wanted, &k, &slot, &step);)
    uses[as_int(slot)] = as_int(step);
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(span.needed); ++k) {
    const int64_t index = item(span.needed, k);
    PyObject* reads = Record::reads(span.record.step(index));
    for (Py_ssize_t r = 0; r < PyTuple_GET_SIZE(reads); ++r) {
      PyObject* read = PyTuple_GET_ITEM(reads, r);
      if (span.record.made_by(read) < 0) continue;
      const auto [place, fresh] = uses.emplace(as_int(read), index);
      if (!fresh) place->second = std::max(place->second, index);
    }
  }
  return uses;
}

// For each position from start to end, the bytes made before and used after.
template <typename Skip>
std::vector<int64_t> crossing(const SpanInput& span, const Uses& uses, const Skip& skip) {
  const int64_t length = span.end - span.start;
  std::vector<int64_t> change(length + 2, 0);
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(span.needed); ++k) {
    const int64_t index = item(span.needed, k);
    if (index < span.start) continue;
    PyObject* step = span.record.step(index);
    Facts otherwise;
    const Made made = made_by(step, facts_of(step, otherwise));
    for (int64_t slot = made.first; slot < made.last; ++slot) {
      const auto used = uses.find(slot);
      if (used == uses.end() || used->second <= index || skip(slot)) continue;
      change[index + 1 - span.start] += item(span.nbytes, slot);
      change[std::min(used->second, span.end) + 1 - span.start] -= item(span.nbytes, slot);
    }
  }
  for (int64_t k = 1; k <= length; ++k) change[k] += change[k - 1];
  change.pop_back();
  return change;
}

struct Reads {
  int64_t inner = 0, cotangents = 0, all = 0, summed = 0, largest = 0;
};

// The cotangents of what a step reads of a slot: that of a part is put into one of the
// whole.
inline int64_t given_back(const SpanInput& span, int64_t slot, int64_t size) {
  const int64_t whole = item(span.nbytes, slot);
  if (item(span.record.producer, slot) < 0 || size >= whole) return std::max(whole, size);
  return size + whole;
}

// Bytes of slots that steps made and that get their first cotangent here, the cotangents of
// all that may get one, and the bytes of all; of the largest parameter whose sum with
// that of a later read is a tensor of its own; and the largest cotangent.
inline Reads bytes_read(const SpanInput& span, int64_t index, const Facts& facts, int64_t made) {
  PyObject* step = span.record.step(index);
  PyObject* reads = Record::reads(step);
  const bool lean = facts.lean || facts.copying;
  c10::SmallVector<int64_t, 8> any;
  c10::SmallVector<std::pair<int64_t, int64_t>, 8> inputs;
  Reads sums;
  sums.largest = made;
  for (Py_ssize_t r = 0; r < PyTuple_GET_SIZE(reads); ++r) {
    PyObject* read = PyTuple_GET_ITEM(reads, r);
    const int64_t slot = as_int(read);
    if (std::find(any.begin(), any.end(), slot) == any.end()) {
      any.push_back(slot);
      sums.all += item(span.nbytes, slot);
    }
    if (facts.differentiable[r] == 0) continue;
    sums.largest = std::max(sums.largest, facts.sizes[r]);
    const int64_t size = lean ? facts.sizes[r] : std::max(facts.sizes[r], made);
    const auto place = std::find_if(
        inputs.begin(), inputs.end(), [&](const auto& each) { return each.first == slot; });
    if (place != inputs.end()) {  // several reads of one slot have a cotangent each
      place->second += size;
      continue;
    }
    inputs.emplace_back(slot, size);
    if (span.record.made_by(read) >= 0 && item(span.last_read, slot) <= index)
      sums.inner += item(span.nbytes, slot);
    PyObject* last = lookup(span.apart, read);
    if (last && as_int(last) > index)
      sums.summed = std::max(sums.summed, item(span.nbytes, slot));
  }
  for (const auto& [slot, size] : inputs) sums.cotangents += given_back(span, slot, size);
  return sums;
}

// What a step makes, what its kernel takes for itself, and what reversing it takes.
struct StepBytes {
  int64_t made = 0, kernel = 0, reverse = 0, inner = 0;
};

inline StepBytes bytes_of(const SpanInput& span, int64_t index) {
  PyObject* step = span.record.step(index);
  StepBytes sums;
  Facts otherwise;
  const Facts& facts = facts_of(step, otherwise);
  const Made range = made_by(step, facts);
  for (int64_t each = range.first; each < range.last; ++each)
    sums.made += item(span.nbytes, each);
  const int64_t results = sums.made - facts.scratch_bytes;
  const Reads reads = bytes_read(span, index, facts, results);
  sums.kernel = facts.workspace + (facts.copying ? results + reads.all : 0);
  int64_t formula = facts.copying ? sums.kernel + facts.sizes[0] + facts.reverse_workspace
                                  : facts.spare * reads.largest + facts.reverse_workspace;
  PyObject* writes = PyTuple_GET_ITEM(step, 3);
  for (int64_t k = 1; !facts.copying && k <= PyTuple_GET_SIZE(writes); ++k)
    formula += 2 * item(span.nbytes, range.last - k);
  if (!facts.passive)
    sums.reverse = reads.cotangents + std::max(results + formula, reads.summed);
  sums.inner = reads.inner;
  return sums;
}

inline SpanSums sums_of(const SpanInput& span) {
  const Uses uses = last_uses(span);
  Slots wanted;
  PyObject *slot = nullptr, *at = nullptr;
  for (Py_ssize_t k = 0; PyDict_Next(span.wanted, &k, &slot, &at);)
    wanted.insert(as_int(slot));
  SpanSums sums;
  sums.widths = crossing(span, uses, [](int64_t) { return false; });
  const auto unwanted =
      crossing(span, uses, [&](int64_t each) { return wanted.count(each) != 0; });
  for (Py_ssize_t k = 0; k < PyList_GET_SIZE(span.needed); ++k) {
    const int64_t index = item(span.needed, k);
    PyObject* step = span.record.step(index);
    Facts otherwise;
    const Facts& facts = facts_of(step, otherwise);
    const Made range = made_by(step, facts);
    int64_t transient = facts.copying ? bytes_of(span, index).kernel : facts.workspace;
    for (int64_t each = range.first; each < range.last; ++each)
      if (wanted.count(each) == 0) transient += item(span.nbytes, each);
    if (index >= span.start) transient += unwanted[index - span.start];
    sums.transient = std::max(sums.transient, transient);
  }
  const int64_t last = std::min<int64_t>(span.end + 1, PyList_GET_SIZE(span.record.steps));
  for (int64_t index = span.start; index < last; ++index) {
    const StepBytes bytes = bytes_of(span, index);
    const int64_t waiting = item(span.waiting, index - span.start);
    sums.reverse = std::max(sums.reverse, bytes.reverse + std::max<int64_t>(0, waiting - bytes.inner));
  }
  return sums;
}

}  // namespace retape
