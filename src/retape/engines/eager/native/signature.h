// A call with everything but its tensors: the key under which it is known, and a
// template from which it can be run again.
#pragma once

#include "common.h"

namespace retape {

using Key = std::string;

using Integers = c10::SmallVector<int64_t, 5>;

// A geometry as numbers, kept on a `Geometry`.
struct Sight {
  Integers size, stride;
  int64_t offset;
  c10::ScalarType dtype;
  bool conj, neg;

  explicit Sight(const at::Tensor& tensor)
      : size(tensor.sizes().begin(), tensor.sizes().end()),
        stride(tensor.strides().begin(), tensor.strides().end()),
        offset(tensor.storage_offset()),
        dtype(tensor.scalar_type()),
        conj(tensor.is_conj()),
        neg(tensor.is_neg()) {}

  bool seen_on(const at::Tensor& tensor) const {
    return tensor.scalar_type() == dtype && tensor.storage_offset() == offset &&
        tensor.is_conj() == conj && tensor.is_neg() == neg &&
        tensor.sizes() == c10::IntArrayRef(size) &&
        tensor.strides() == c10::IntArrayRef(stride);
  }
};

inline constexpr const char* SIGHT = "retape.sight";

// Where a tensor goes: argument, and index in it if it is a list.
struct Place {
  int32_t argument, index;
};

// Where the new storages are in a result.
using Outputs = std::vector<int64_t>;

inline Outputs outputs_of(const Ref& signature) {
  Outputs found;
  const Ref results = member(signature, "outputs");
  for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(results.get()); ++k)
    found.push_back(as_int(PyTuple_GET_ITEM(results.get(), k)));
  return found;
}

struct Template {
  c10::OperatorHandle op;
  std::vector<c10::IValue> arguments;
  std::vector<Place> places;
  std::vector<Sight> sights;
  Outputs outputs;
  bool grad;
  caffe2::TypeMeta dtype;  // the default type of numbers
};

template <typename T>
void add(Key& key, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  key.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

inline void add_geometry(Key& key, const at::Tensor& tensor) {
  const auto size = tensor.sizes(), stride = tensor.strides();
  add(key, static_cast<int32_t>(size.size()));
  key.append(reinterpret_cast<const char*>(size.data()), 8 * size.size());
  key.append(reinterpret_cast<const char*>(stride.data()), 8 * stride.size());
  add(key, tensor.storage_offset());
  add(key, tensor.scalar_type());
  add(key, static_cast<char>(
      tensor.is_conj() + 2 * tensor.is_neg() + 4 * tensor.requires_grad()));
}

inline bool plain_tensor(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.layout() == at::kStrided &&
      !tensor.key_set().has(c10::DispatchKey::Python) &&
      !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

// A constant argument; false if it has no bytes to compare.
inline bool add_constant(Key& key, const c10::IValue& value) {
  if (value.isNone()) {
    key += 'N';
  } else if (value.isInt()) {
    key += 'i';
    add(key, value.toInt());
  } else if (value.isDouble()) {
    key += 'd';
    add(key, value.toDouble());
  } else if (value.isBool()) {
    key += value.toBool() ? 'T' : 'F';
  } else if (value.isIntList()) {
    key += 'I';
    const auto list = value.toIntVector();
    add(key, static_cast<int32_t>(list.size()));
    key.append(reinterpret_cast<const char*>(list.data()), 8 * list.size());
  } else if (value.isBoolList()) {
    key += 'B';
    const auto list = value.toBoolList();
    add(key, static_cast<int32_t>(list.size()));
    for (const bool flag : list) key += flag ? '1' : '0';
  } else if (value.isDoubleList()) {
    key += 'D';
    const auto list = value.toDoubleVector();
    add(key, static_cast<int32_t>(list.size()));
    key.append(reinterpret_cast<const char*>(list.data()), 8 * list.size());
  } else if (value.isString()) {
    key += 's';
    const auto& text = value.toStringRef();
    add(key, static_cast<int32_t>(text.size()));
    key += text;
  } else if (value.isDevice()) {
    key += 'v';
    add(key, value.toDevice().type());
    add(key, value.toDevice().index());
  } else {
    return false;
  }
  return true;
}

// A number that PyTorch wrapped, as 2 in `x * 2`. Python sees it as a number.
inline bool is_number(const at::Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
      tensor.has_storage() && tensor.is_cpu();
}

inline void add_number(Key& key, const at::Tensor& tensor) {
  key += 'w';
  add(key, tensor.scalar_type());
  key.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.itemsize());
}

// Calls `each(tensor, place)` for the tensors of a call, in order, and writes its key.
template <typename Each>
bool scan(Key& key, c10::ArrayRef<c10::IValue> arguments, const Each& each) {
  for (size_t k = 0; k < arguments.size(); ++k) {
    const auto& value = arguments[k];
    const auto argument = static_cast<int32_t>(k);
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (!tensor.defined()) {
        key += 'U';
      } else if (is_number(tensor)) {
        add_number(key, tensor);
      } else {
        key += 't';
        if (!each(tensor, Place{argument, -1})) return false;
      }
    } else if (value.isTensorList()) {
      const auto list = value.toTensorVector();
      key += 'L';
      add(key, static_cast<int32_t>(list.size()));
      for (size_t index = 0; index < list.size(); ++index)
        if (!each(list[index], Place{argument, static_cast<int32_t>(index)}))
          return false;
    } else if (!add_constant(key, value)) {
      return false;
    }
  }
  return true;
}

inline Template make_template(
    const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  Template made{op, arguments.vec(), {}, {}, {}, false, c10::get_default_dtype()};
  made.grad = c10::GradMode::is_enabled();
  Key ignored;
  scan(ignored, arguments, [&](const at::Tensor& tensor, Place place) {
    made.places.push_back(place);
    made.sights.emplace_back(tensor);
    return true;
  });
  for (auto& value : made.arguments)  // it must not keep tensors alive
    if (value.isTensor() && !is_number(value.toTensor())) value = at::Tensor();
    else if (value.isTensorList()) value = c10::List<at::Tensor>();
  return made;
}

// The results on top of a stack, or those in the one list there.
inline c10::ArrayRef<c10::IValue> results_on(const torch::jit::Stack& stack, size_t count) {
  if (count == 1 && stack.back().isTensorList()) return stack.back().toListRef();
  return c10::ArrayRef<c10::IValue>(stack.data() + stack.size() - count, count);
}

inline constexpr const char* TEMPLATE = "retape.template";

// A new tensor below autograd.
inline at::Tensor tensor_on(c10::Storage storage, c10::DispatchKeySet keys, const Sight& wanted) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      std::move(storage), keys, c10::scalarTypeToTypeMeta(wanted.dtype));
  impl->set_storage_offset(wanted.offset);
  impl->set_sizes_and_strides(c10::IntArrayRef(wanted.size), c10::IntArrayRef(wanted.stride));
  at::Tensor made{std::move(impl)};
  made._set_conj(wanted.conj);
  made._set_neg(wanted.neg);
  return made;
}

// `root`, which is below autograd, through the geometry of a template.
inline at::Tensor look(const at::Tensor& root, const Sight& wanted) {
  if (wanted.seen_on(root)) return root;
  return tensor_on(root.storage(), root.key_set(), wanted);
}

}  // namespace retape
