// Every kernel of the emulated device: the CPU's, on the same bytes, after the checks that a real GPU makes.
#include "graph.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_sparse_csr_tensor_unsafe.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/col_indices_native.h>
#include <ATen/ops/crow_indices_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/values_native.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include <ctime>
#include <unordered_set>
#include <utility>

namespace emulated {
namespace {

using at::IValue;
using at::Tensor;
using torch::jit::Stack;

// Kernels that end only when the host knows a number that the device computed.
const std::unordered_set<std::string> kWaits{
    "aten::_local_scalar_dense", "aten::nonzero", "aten::nonzero_static", "aten::_unique2", "aten::unique_dim",
    "aten::unique_consecutive", "aten::unique_dim_consecutive", "aten::masked_select", "aten::equal",
    "aten::is_nonzero", "aten::bincount", "aten::_coalesce", "aten::multinomial", "aten::histc"};
// Kernels that take host tensors beside those of the device: indices are copied there first.
const std::unordered_set<std::string> kIndexing{"aten::index", "aten::index_put", "aten::index_put_",
                                                "aten::_index_put_impl_", "aten::_unsafe_index"};

// --- one call: host tensors over the device's bytes, and back ------------------------------------------------------
class Call {
 public:
  explicit Call(const std::string& name) : name_(name), indexing_(kIndexing.count(name) > 0) {}

  IValue to_host(const IValue& value, bool written) {
    if (value.isTensor()) return host_of(value.toTensor(), written);
    if (value.isTensorList()) {
      std::vector<Tensor> hosts;
      for (const Tensor& one : value.toTensorVector()) hosts.push_back(host_of(one, written));
      return hosts;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> hosts;
      for (const std::optional<Tensor>& one : value.toOptionalTensorList()) {
        boolean_index_ |= one.has_value() && one->defined() && one->scalar_type() == at::kBool;
        hosts.push_back(one.has_value() ? std::optional<Tensor>(host_of(*one, written)) : one);
      }
      return hosts;
    }
    if (value.isDevice() && value.toDevice().is_cuda()) {
      use(value.toDevice());
      return c10::Device(c10::DeviceType::CPU);
    }
    return value;
  }

  IValue to_device(const IValue& value) {
    if (value.isTensor()) return device_of(value.toTensor());
    if (!value.isTensorList()) return value;
    std::vector<Tensor> there;
    for (const Tensor& one : value.toTensorVector()) there.push_back(device_of(one));
    return there;
  }

  // After the kernel: tensors that it gave another size, or more elements, have it on the device too.
  void take_over_sizes() {
    for (auto& [original, host] : written_) {
      if (original.is_sparse()) {
        auto* sparse = at::sparse::get_sparse_impl(original);
        sparse->raw_resize_(host.sparse_dim(), host.dense_dim(), host.sizes());
        sparse->set_indices_and_values_unsafe(device_of(host._indices()), device_of(host._values()));
        sparse->set_coalesced(host.is_coalesced());
      } else if (host.sizes() != original.sizes()) {
        original.unsafeGetTensorImpl()->set_storage_keep_dtype(storage_of(host.storage()));
        original.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides());
      }
    }
  }

  c10::Device device() const { return device_; }
  const std::vector<Memory*>& reads() const { return reads_; }
  std::vector<Memory*>& writes() { return writes_; }
  bool made_anything() const { return made_; }
  bool boolean_index() const { return boolean_index_; }

 private:
  void use(c10::Device device) {
    const c10::Device there(device.type(), device.index() < 0 ? static_cast<c10::DeviceIndex>(
        c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->getDevice().index()) : device.index());
    if (used_ && there != device_) refuse(there.str());
    device_ = there;
    used_ = true;
    if (!on_host_.empty()) refuse("cpu");
  }

  void refuse(const std::string& other) const {
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", device_.str(),
                " and ", other, "! (", name_, " on the emulated device)");
  }

  Tensor host_of(const Tensor& tensor, bool written) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_cuda()) {
      if (name_ == "aten::index") return tensor;  // torch has copied it to the device, in what precedes the kernel
      if (indexing_ && used_) {
        count(H2D_COPIES, 1, name_.c_str());
        count(H2D_BYTES, static_cast<int64_t>(tensor.nbytes()), name_.c_str());
        if (!is_pinned(tensor.data_ptr())) count(PAGEABLE_H2D_BYTES, static_cast<int64_t>(tensor.nbytes()), name_.c_str());
        count(WAITS, 1, name_.c_str());
      } else if (tensor.dim() > 0) {
        if (used_) refuse("cpu");
        on_host_.push_back(name_);
      }
      return tensor;
    }
    use(tensor.device());
    const Tensor host = alias(tensor, written);
    if (written) written_.emplace_back(tensor, host);
    return host;
  }

  Tensor alias(const Tensor& tensor, bool written) {
    if (tensor.is_sparse()) {
      auto host = at::_sparse_coo_tensor_unsafe(alias(tensor._indices(), written), alias(tensor._values(), written),
                                                tensor.sizes(), at::TensorOptions().device(at::kCPU).layout(at::kSparse)
                                                    .dtype(tensor.scalar_type()));
      host._coalesced_(tensor.is_coalesced());
      return host;
    }
    if (tensor.is_sparse_csr())
      return at::_sparse_csr_tensor_unsafe(alias(tensor.crow_indices(), written), alias(tensor.col_indices(), written),
                                           alias(tensor.values(), written), tensor.sizes(),
                                           at::TensorOptions().device(at::kCPU).layout(at::kSparseCsr)
                                               .dtype(tensor.scalar_type()));
    const c10::Storage& storage = tensor.storage();
    Memory* memory = memory_of(storage);
    TORCH_CHECK(memory != nullptr || storage.nbytes() == 0, "memory of cuda that the emulated device did not give out");
    if (memory != nullptr) (written ? writes_ : reads_).push_back(memory);
    c10::Storage bytes;
    for (const auto& [device, host] : storages_)
      if (device.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) bytes = host;
    if (!bytes) {
      c10::DataPtr pointer(storage.mutable_data(), c10::Device(c10::DeviceType::CPU));
      bytes = c10::Storage(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(pointer), c10::GetCPUAllocator(), true);
      storages_.emplace_back(storage, bytes);
    }
    Tensor host = at::detail::make_tensor<c10::TensorImpl>(std::move(bytes), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                           tensor.dtype());
    host.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    if (tensor.is_conj()) host._set_conj(true);
    if (tensor.is_neg()) host._set_neg(true);
    return host;
  }

  Tensor device_of(const Tensor& host) {
    if (!host.defined() || !used_) return host;
    for (const auto& [original, alias] : written_)
      if (alias.is_same(host)) return original;
    if (host.is_cuda()) return host;
    if (host.is_sparse()) {
      Tensor there = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(c10::DispatchKey::SparseCUDA),
                                                                   host.dtype());
      auto* sparse = at::sparse::get_sparse_impl(there);
      sparse->raw_resize_(host.sparse_dim(), host.dense_dim(), host.sizes());
      sparse->set_indices_and_values_unsafe(device_of(host._indices()), device_of(host._values()));
      sparse->set_coalesced(host.is_coalesced());
      return there;
    }
    if (host.is_sparse_csr()) {
      Tensor there = at::detail::make_tensor<at::SparseCsrTensorImpl>(
          c10::DispatchKeySet(c10::DispatchKey::SparseCsrCUDA), device_, at::kSparseCsr, host.dtype());
      static_cast<at::SparseCsrTensorImpl*>(there.unsafeGetTensorImpl())->set_member_tensors(
          device_of(host.crow_indices()), device_of(host.col_indices()), device_of(host.values()), host.sizes());
      return there;
    }
    Tensor there = at::detail::make_tensor<c10::TensorImpl>(storage_of(host.storage()),
                                                            c10::DispatchKeySet(c10::DispatchKey::CUDA), host.dtype());
    there.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
    if (host.is_conj()) there._set_conj(true);
    if (host.is_neg()) there._set_neg(true);
    return there;
  }

  c10::Storage storage_of(const c10::Storage& host) {
    for (const auto& [device, known] : storages_)
      if (known.unsafeGetStorageImpl() == host.unsafeGetStorageImpl() && known.data() == device.data()) return device;
    c10::Storage there = adopt(host, device_);
    storages_.emplace_back(there, host);
    if (auto* memory = memory_of(there)) writes_.push_back(memory);
    made_ = true;
    return there;
  }

  const std::string& name_;
  const bool indexing_;
  bool used_ = false, made_ = false, boolean_index_ = false;
  c10::Device device_{c10::DeviceType::CUDA, 0};
  std::vector<std::string> on_host_;
  std::vector<std::pair<c10::Storage, c10::Storage>> storages_;  // of the device, and of the host over the same bytes
  std::vector<std::pair<Tensor, Tensor>> written_;
  std::vector<Memory*> reads_, writes_;
};

bool is_view(const c10::FunctionSchema& schema) {
  for (const auto& value : schema.returns())
    if (value.alias_info() != nullptr && !value.alias_info()->isWrite()) return true;
  return false;
}

IValue frozen(const IValue& value) {
  if (value.isTensor()) return emulated::frozen(value.toTensor());
  if (value.isTensorList()) {
    std::vector<Tensor> all;
    for (const Tensor& one : value.toTensorVector()) all.push_back(emulated::frozen(one));
    return all;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> all;
    for (const std::optional<Tensor>& one : value.toOptionalTensorList())
      all.push_back(one.has_value() ? std::optional<Tensor>(emulated::frozen(*one)) : one);
    return all;
  }
  return value;
}

std::vector<IValue> all_frozen(const Stack& stack, size_t first) {
  std::vector<IValue> values;
  for (size_t place = first; place < stack.size(); ++place) values.push_back(frozen(stack[place]));
  return values;
}

// A replay's result goes where the captured one was.
void overwrite(const std::string& name, const Tensor& captured, const Tensor& made) {
  if (!captured.defined() || !captured.is_cuda() || captured.is_alias_of(made)) return;
  TORCH_CHECK(captured.layout() == at::kStrided && captured.sizes() == made.sizes(),
              "emulated CUDA: a replay of ", name, " has another result than its capture");
  if (auto* memory = memory_of(captured.storage())) launch(current_stream(captured.device().index()), name, {}, {memory});
  bytes_of(captured).copy_(bytes_of(made));
}

void run(const c10::OperatorHandle& op, Stack* stack);

void run_again(const c10::OperatorHandle& op, const std::vector<IValue>& arguments, const std::vector<IValue>& results) {
  const at::AutoDispatchBelowADInplaceOrView below;
  Stack stack(arguments.begin(), arguments.end());
  run(op, &stack);
  for (size_t place = 0; place < results.size(); ++place) {
    if (results[place].isTensor()) overwrite(op.schema().name(), results[place].toTensor(), stack[place].toTensor());
    if (!results[place].isTensorList()) continue;
    const auto captured = results[place].toTensorVector(), made = stack[place].toTensorVector();
    for (size_t one = 0; one < captured.size(); ++one) overwrite(op.schema().name(), captured[one], made[one]);
  }
}

void run(const c10::OperatorHandle& op, Stack* stack) {
  const auto& schema = op.schema();
  const std::string& name = schema.name();
  raise_pending();
  const size_t first = stack->size() - schema.arguments().size();
  const auto arguments = is_captured_here() && !is_view(schema) ? all_frozen(*stack, first) : std::vector<IValue>{};
  Call call(name);
  bool output_size = false;
  for (size_t place = 0; place < schema.arguments().size(); ++place) {
    const auto& argument = schema.arguments()[place];
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    IValue& value = (*stack)[first + place];
    output_size |= argument.name() == "output_size" && !value.isNone();
    value = call.to_host(value, written);
  }
  const c10::Stream stream = current_stream(call.device().index());
  const bool captured = !is_view(schema) && is_captured(stream);
  if (captured) keep_bytes(call.writes());
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    op.callBoxed(stack);
  }
  call.take_over_sizes();
  const size_t results = stack->size() - schema.returns().size();
  for (size_t place = results; place < stack->size(); ++place) (*stack)[place] = call.to_device((*stack)[place]);
  if (is_view(schema)) return;
  const bool waits = kWaits.count(name) > 0 || (kIndexing.count(name) > 0 && call.boolean_index()) ||
                     (name == "aten::repeat_interleave" && !output_size);
  if (captured)
    note([op, arguments, made = all_frozen(*stack, results)] { run_again(op, arguments, made); });
  launch(stream, name, call.reads(), call.writes());
  count(LAUNCHES, 1, name.c_str());
  if (waits) {
    count(WAITS, 1, name.c_str());
    host_waits(stream);
  }
}

thread_local int64_t kernel_ns = 0;  // of the calling thread, until it asks (`emulated_take_kernel_ns`)

int64_t thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

void kernel(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const int64_t start = thread_ns();
  run(op, stack);
  kernel_ns += thread_ns() - start;
}

}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&kernel>()); }
TORCH_LIBRARY_IMPL(_, SparseCUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&kernel>()); }
TORCH_LIBRARY_IMPL(_, SparseCsrCUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&kernel>()); }
TORCH_LIBRARY_IMPL(aten, SparseCUDA, library) {
  library.impl("is_coalesced", &at::native::is_coalesced_sparse);
  library.impl("_coalesced_", &at::native::_coalesced_sparse_);
  library.impl("_nnz", &at::native::_nnz_sparse);
  library.impl("_indices", &at::native::_indices_sparse);
  library.impl("_values", &at::native::_values_sparse);
  library.impl("indices", &at::native::indices_sparse);
  library.impl("values", &at::native::values_sparse);
  library.impl("sparse_dim", &at::native::sparse_dim_sparse);
  library.impl("dense_dim", &at::native::dense_dim_sparse);
}
TORCH_LIBRARY_IMPL(aten, SparseCsrCUDA, library) {
  library.impl("crow_indices", &at::native::crow_indices_sparse_csr);
  library.impl("col_indices", &at::native::col_indices_sparse_csr);
  library.impl("values", &at::native::values_sparse_csr);
  library.impl("_nnz", &at::native::_nnz_sparse_csr);
  for (const char* name : {"mm", "mm.out", "addmm", "addmm.out"})  // else torch would put them together from others
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&kernel>());
}

}  // namespace emulated

// CPU time that the calling thread spent in kernels since it last asked: `benchmarks/host_step.py` takes it out.
extern "C" int64_t emulated_take_kernel_ns() { return std::exchange(emulated::kernel_ns, 0); }
