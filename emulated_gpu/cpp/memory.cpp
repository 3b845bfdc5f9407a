// What is not the CPU's kernel: memory, views of it, and copies between the host and the device.
#include "graph.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include <cstring>

namespace emulated {

using at::Tensor;

Tensor bytes_of(const Tensor& tensor) {
  Tensor host = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                   c10::DataPtr(tensor.storage().mutable_data(), c10::Device(c10::DeviceType::CPU)),
                   c10::GetCPUAllocator(), false),
      c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  host.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return host;
}

namespace {

bool on_device(const Tensor& tensor) { return tensor.defined() && tensor.is_cuda(); }

Tensor empty(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device> device, std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes), device_allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   dtype.value_or(at::typeMetaToScalarType(at::get_default_dtype())), format);
}

Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool> pinned) {
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
                                           device_allocator(), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                           dtype.value_or(at::typeMetaToScalarType(at::get_default_dtype())));
}

const Tensor& resize_(const Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat>) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(C10_AS_INTARRAYREF_SLOW(size));
  const size_t needed = static_cast<size_t>(impl->numel() + impl->storage_offset()) * impl->itemsize();
  if (impl->storage().nbytes() < needed) {
    const c10::OptionalDeviceGuard guard(self.device());
    auto bytes = device_allocator()->allocate(needed);
    std::memcpy(bytes.get(), impl->storage().data(), impl->storage().nbytes());
    impl->unsafe_storage().set_data_ptr_noswap(std::move(bytes));
    impl->unsafe_storage().set_nbytes(needed);
  }
  return self;
}

Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  raise_pending();
  if (self.is_same(source) || source.numel() == 0) return self;
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::Device there = on_device(self) ? self.device() : source.device();
  const c10::Stream stream = current_stream(there.index());
  std::vector<Memory*> reads, writes;
  if (auto* memory = on_device(source) ? memory_of(source.storage()) : nullptr) reads.push_back(memory);
  if (auto* memory = on_device(self) ? memory_of(self.storage()) : nullptr) writes.push_back(memory);
  if (is_captured(stream)) {
    note([into = on_device(self) ? frozen(self) : self, from = frozen(source), non_blocking]() mutable { copy_(into, from, non_blocking); });
    keep_bytes(writes);
  }
  Tensor into = on_device(self) ? bytes_of(self) : self;
  const Tensor from = on_device(source) ? bytes_of(source) : source;
  if (on_device(self) && on_device(source)) {
    if (self.device() != source.device()) {  // both devices' streams wait for each other, as torch has it
      Event event;
      record(event, current_stream(self.device().index()));
      stream_waits(event, current_stream(source.device().index()));
      launch(current_stream(source.device().index()), "copy between devices", reads, writes);
      record(event, current_stream(source.device().index()));
      stream_waits(event, current_stream(self.device().index()));
    } else {
      launch(stream, "aten::copy_", reads, writes);
    }
    into.copy_(from);
    count(LAUNCHES, 1, "aten::copy_");
    return self;
  }
  launch(stream, on_device(self) ? "copy to the device" : "copy to the host", reads, writes);
  const Tensor& host = on_device(self) ? source : self;
  const auto num_bytes = static_cast<int64_t>(source.nbytes());
  const bool pinned = is_pinned(host.data_ptr());
  const bool simple = host.is_contiguous() && self.scalar_type() == source.scalar_type();
  if (on_device(self)) {
    count(H2D_COPIES, 1, "copy to the device");
    count(H2D_BYTES, num_bytes, "copy to the device");
    if (!pinned) count(PAGEABLE_H2D_BYTES, num_bytes, "copy to the device");
    into.copy_(from);
    if (non_blocking && pinned && simple) copy_to_device_later(stream, host.storage(), host.data_ptr(), host.nbytes());
  } else {
    count(D2H_COPIES, 1, "copy to the host");
    count(D2H_BYTES, num_bytes, "copy to the host");
    into.copy_(from);
    if (non_blocking && pinned && simple)
      copy_to_host_later(stream, host.storage(), host.data_ptr(), from.contiguous().data_ptr(), host.nbytes());
  }
  if (!non_blocking || !pinned || !simple) {
    // What is not pinned is staged, and the host goes on only when that is over.
    count(WAITS, 1, on_device(self) ? "copy to the device" : "copy to the host");
    host_waits(stream);
  }
  return self;
}

at::Scalar local_scalar(const Tensor& self) {
  raise_pending();
  const c10::Stream stream = current_stream(self.device().index());
  if (auto* memory = memory_of(self.storage())) launch(stream, "aten::item", {memory}, {});
  count(WAITS, 1, "aten::item");
  count(D2H_COPIES, 1, "aten::item");
  count(D2H_BYTES, static_cast<int64_t>(self.element_size()), "aten::item");
  host_waits(stream);
  const at::AutoDispatchBelowADInplaceOrView below;
  return at::_local_scalar_dense(bytes_of(self));
}

void record_stream(Tensor& self, c10::Stream stream) {
  if (auto* memory = memory_of(self.storage())) memory->recorded.insert(number_of(stream));
}

Tensor& set_storage(Tensor& self, c10::Storage source, c10::SymInt offset, c10::SymIntArrayRef size,
                    c10::SymIntArrayRef stride) {
  TORCH_CHECK(source.device_type() == c10::DeviceType::CUDA, "a tensor on cuda over memory that is not there");
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  if (stride.empty() && !sizes.empty()) {
    impl->set_storage_offset(offset.guard_int(__FILE__, __LINE__));
    impl->set_sizes_contiguous(sizes);
  } else {
    impl->set_sizes_and_strides(sizes, C10_AS_INTARRAYREF_SLOW(stride), offset.guard_int(__FILE__, __LINE__));
  }
  return self;
}

Tensor& set_whole_storage(Tensor& self, c10::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.element_size());
  return set_storage(self, std::move(source), 0, c10::SymIntArrayRef{c10::SymInt(count)}, {});
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(source.storage());
  self.unsafeGetTensorImpl()->set_sizes_and_strides(source.sizes(), source.strides(), source.storage_offset());
  return self;
}

Tensor as_strided(const Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                  std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      offset.has_value() ? std::optional<int64_t>(offset->guard_int(__FILE__, __LINE__)) : std::nullopt);
}

Tensor view(const Tensor& self, c10::SymIntArrayRef size) { return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size)); }

Tensor reshape_alias(const Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("resize_", &resize_);
  library.impl("copy_", &copy_);
  library.impl("_local_scalar_dense", &local_scalar);
  library.impl("record_stream", &record_stream);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("set_.source_Storage", &set_whole_storage);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("as_strided", &as_strided);
  library.impl("view", &view);
  library.impl("_reshape_alias", &reshape_alias);
}

}  // namespace emulated
