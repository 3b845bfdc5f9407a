// `torch.distributed`'s NCCL for the emulated GPUs: what NCCL refuses is refused, operations are on streams, and the
// host does not wait for them. Gloo moves the bytes when an operation is launched. A Python module, see __init__.py.
#include "graph.h"
#include "order.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

namespace emulated {
namespace {

using at::Tensor;
using c10::intrusive_ptr;
using Tensors = std::vector<Tensor>;

// An operation under way: `wait` makes the thread's current stream wait, not the host.
class Enqueued final : public c10d::Work {
 public:
  // `kept`: what the operation reads and writes, until somebody waits for it; none for one of the current stream.
  Enqueued(c10d::OpType type, Event done, c10::Stream stream, Tensors kept, Tensors results)
      : Work(-1, type), done_(std::move(done)), stream_(stream), kept_(std::move(kept)), results_(std::move(results)) {}

  ~Enqueued() override {  // torch holds the memory of an operation that nobody waited for until it is over
    for (const auto& tensor : kept_)
      if (auto* memory = memory_of(tensor.storage())) memory->recorded.insert(number_of(stream_));
  }

  bool isCompleted() override { host_waits(done_); return true; }
  bool isSuccess() const override { return true; }
  void synchronize() override {
    if (kept_.empty()) return;
    count(STREAM_WAITS, 1, "wait for NCCL");
    stream_waits(done_, current_stream(stream_.device_index()));
    kept_.clear();
  }
  bool wait(std::chrono::milliseconds) override { synchronize(); return true; }
  Tensors result() override { return results_; }

 private:
  const Event done_;
  const c10::Stream stream_;
  Tensors kept_;
  const Tensors results_;
};

// What NCCL has types for; torch sends bool as bytes.
const std::set<at::ScalarType> kTypes{at::kByte, at::kChar, at::kInt, at::kLong, at::kHalf, at::kFloat, at::kDouble,
                                      at::kBFloat16, at::kBool};

Tensor on_host(const Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()));
}

std::vector<Memory*> memories(const Tensors& tensors) {
  std::vector<Memory*> all;
  for (const auto& tensor : tensors)
    if (auto* memory = memory_of(tensor.storage())) all.push_back(memory);
  return all;
}

class Nccl final : public c10d::Backend {
 public:
  struct Options final : c10d::Backend::Options {
    Options() : c10d::Backend::Options("nccl") {}
    bool is_high_priority_stream = false;
  };

  Nccl(intrusive_ptr<c10d::Store> store, int rank, int size, intrusive_ptr<Options> options,
       intrusive_ptr<c10d::Backend> gloo)
      : Backend(rank, size), store_(store->clone()), options_(std::move(options)), gloo_(std::move(gloo)) {}

  const std::string getBackendName() const override { return "nccl, emulated over gloo (emulated_gpu)"; }
  intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; gloo_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override {}
  void shutdown() override {
    TORCH_CHECK(graphs_.use_count() == 1, "emulated NCCL: a captured graph uses this group, and NCCL would wait for it "
                "(ncclCommDestroy)");
    communicator_.reset();
  }
  void abort() override { shutdown(); }
  uint64_t getSequenceNumberForGroup() override { return operations_; }

  intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return collective({"all_reduce", c10d::OpType::ALLREDUCE, tensors, tensors, options.asyncOp}, [this, tensors, options] {
      Tensors host{on_host(only(tensors))};
      gloo_->allreduce(host, options)->wait();
    });
  }

  intrusive_ptr<c10d::Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const Tensors none, &reads = options.rootRank == rank_ ? tensors : none, &writes = options.rootRank == rank_ ? none : tensors;
    const std::string name = "broadcast from rank " + std::to_string(options.rootRank);
    return collective({name, c10d::OpType::BROADCAST, reads, writes, options.asyncOp}, [this, tensors, options] {
      Tensors host{on_host(only(tensors))};
      gloo_->broadcast(host, options)->wait();
    });
  }

  intrusive_ptr<c10d::Work> _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& options) override {
    TORCH_CHECK_VALUE(output.numel() == input.numel() * size_, "output tensor size must be equal to world_size times input tensor size");
    return collective({"all_gather", c10d::OpType::_ALLGATHER_BASE, {input}, {output}, options.asyncOp}, [this, output, input, options] {
      Tensor there = on_host(output), here = on_host(input);
      gloo_->_allgather_base(there, here, options)->wait();
    });
  }

  intrusive_ptr<c10d::Work> _reduce_scatter_base(Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& options) override {
    TORCH_CHECK_VALUE(input.numel() == output.numel() * size_, "input tensor must be the same size as output size times world size");
    return collective({"reduce_scatter", c10d::OpType::_REDUCE_SCATTER_BASE, {input}, {output}, options.asyncOp}, [this, output, input, options] {
      Tensor there = on_host(output), here = on_host(input);
      gloo_->_reduce_scatter_base(there, here, options)->wait();
    });
  }

  intrusive_ptr<c10d::Work> alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& received,
                                          std::vector<int64_t>& sent, const c10d::AllToAllOptions& options) override {
    return collective({"all_to_all", c10d::OpType::ALLTOALL_BASE, {input}, {output}, options.asyncOp}, [=, this] {
      Tensor there = on_host(output), here = on_host(input);
      std::vector<int64_t> in = received, out = sent;  // gloo takes them
      gloo_->alltoall_base(there, here, in, out, options)->wait();
    });
  }

  // An all-reduce of one element, which the host waits for.
  intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override {
    TORCH_CHECK(device_.has_value() || !options.device_ids.empty(), "emulated NCCL: which device is the barrier's?");
    const c10::Device device = options.device_ids.empty() ? *device_ : c10::Device(
        c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(options.device_ids.front()));
    const c10::DeviceGuard guard(device);
    Tensors one{at::zeros({1}, at::TensorOptions().device(device))};
    c10d::AllreduceOptions plain;
    plain.asyncOp = false;
    auto work = allreduce(one, plain);
    count(WAITS, 1, "NCCL barrier");
    host_waits(current_stream(device.index()));
    return work;
  }

  // --- rows to and from single ranks, in a batch -------------------------------------------------------------------
  void startCoalescing() override { batch_.emplace(); }

  intrusive_ptr<c10d::Work> send(Tensors& tensors, int peer, int tag) override { return note(tensors, peer, tag, true); }
  intrusive_ptr<c10d::Work> recv(Tensors& tensors, int peer, int tag) override { return note(tensors, peer, tag, false); }

  intrusive_ptr<c10d::Work> endCoalescing() override {
    TORCH_CHECK(batch_.has_value(), "emulated NCCL: the end of a batch that was not begun");
    const auto steps = std::move(*batch_);
    batch_.reset();
    if (steps.empty()) return {};
    Tensors reads, writes;
    for (const auto& step : steps) (step.sends ? reads : writes).push_back(step.tensor);
    return enqueue({"send and receive", c10d::OpType::COALESCED, reads, writes, true}, false, [this, steps] {
      std::vector<intrusive_ptr<c10d::Work>> works;
      for (const auto& step : steps) {
        Tensors host{on_host(step.tensor)};
        works.push_back(step.sends ? gloo_->send(host, step.peer, 0) : gloo_->recv(host, step.peer, 0));
      }
      for (const auto& work : works) work->wait();
    });
  }

 private:
  struct Operation {
    std::string name;
    c10d::OpType type;
    const Tensors reads, writes;
    bool async;  // on the communicator's stream, else on the current one
  };
  struct Step { Tensor tensor; int peer; bool sends; };

  static const Tensor& only(const Tensors& tensors) {
    TORCH_CHECK_VALUE(tensors.size() == 1, "emulated NCCL: one tensor per operation");
    return tensors.front();
  }

  intrusive_ptr<c10d::Work> note(const Tensors& tensors, int peer, int tag, bool sends) {
    TORCH_CHECK(tag == 0, "emulated NCCL: NCCL knows no tags");
    TORCH_CHECK(batch_.has_value(), "emulated NCCL: sends and receives are in batches (batch_isend_irecv)");
    check(only(tensors));
    batch_->push_back({only(tensors), peer, sends});
    return {};
  }

  void check(const Tensor& tensor) const {
    TORCH_CHECK_VALUE(tensor.is_cuda() && !tensor.is_sparse() && !tensor.is_sparse_csr(),
                      "Tensors must be CUDA and dense (emulated NCCL), not on ", tensor.device());
    TORCH_CHECK_VALUE(tensor.is_contiguous(), "Tensors must be contiguous (emulated NCCL)");
    TORCH_CHECK_TYPE(kTypes.count(tensor.scalar_type()) > 0, "Input tensor data type is not supported for NCCL process group: ",
                     tensor.scalar_type());
    TORCH_CHECK_VALUE(!device_.has_value() || tensor.device() == *device_, "emulated NCCL: a tensor on ", tensor.device(),
                      " for the communicator of ", *device_);
  }

  intrusive_ptr<c10d::Work> collective(const Operation& operation, const std::function<void()>& exchange) {
    return enqueue(operation, true, exchange);
  }

  // Checks, then the bytes, then what streams know of it. `everybody`: takes part, and has the same number of elements.
  intrusive_ptr<c10d::Work> enqueue(const Operation& operation, bool everybody, const std::function<void()>& exchange) {
    raise_pending();
    for (const auto* tensors : {&operation.reads, &operation.writes})
      for (const auto& tensor : *tensors) check(tensor);
    const Tensor& any = (operation.reads.empty() ? operation.writes : operation.reads).front();
    const Launching launching(operation.name + " of group " + options_->group_name);
    begin(any.device());
    ++operations_;
    const c10::Stream now = current_stream(device_->index()), stream = operation.async ? *stream_ : now;
    if (operation.async) {
      Event ready;
      record(ready, now);
      stream_waits(ready, stream);
    }
    launch(stream, "NCCL's " + operation.name, memories(operation.reads), memories(operation.writes));
    count(LAUNCHES, 1, "NCCL");
    if (is_captured(stream)) note_operation(operation, everybody, exchange);
    if (everybody) communicator_->meet(call(operation, any));
    exchange();
    Event done;
    record(done, stream);
    Tensors kept;
    if (operation.async) {
      kept = operation.reads;
      kept.insert(kept.end(), operation.writes.begin(), operation.writes.end());
    }
    return c10::make_intrusive<Enqueued>(operation.type, std::move(done), stream, std::move(kept), operation.writes);
  }

  // A replay launches the operation on its own stream.
  void note_operation(const Operation& operation, bool everybody, const std::function<void()>& exchange) {
    Tensors reads, writes;
    for (const auto& tensor : operation.reads) reads.push_back(frozen(tensor));
    for (const auto& tensor : operation.writes) writes.push_back(frozen(tensor));
    keep_bytes(memories(writes));
    const Operation again{operation.name, operation.type, reads, writes, false};
    emulated::note([self = c10::intrusive_ptr<Nccl>::reclaim_copy(this), used = graphs_, again, everybody, exchange] {
      self->enqueue(again, everybody, exchange);
    });
  }

  // NCCL's communicator is made by the first operation, for the GPU of its tensors.
  void begin(c10::Device device) {
    if (device_.has_value()) return;
    std::vector<int64_t> ranks;
    for (const auto rank : options_->global_ranks_in_group) ranks.push_back(static_cast<int64_t>(rank));
    for (int rank = 0; ranks.size() < static_cast<size_t>(size_); ++rank) ranks.push_back(rank);  // torch: all of them
    communicator_ = std::make_unique<Communicator>(options_->group_name, store_, rank_, ranks, device.index(), options_->timeout);
    device_ = device;
    stream_ = new_stream(device.index());
  }

  // What must be the same on all ranks. Of all_to_all elements differ.
  static std::string call(const Operation& operation, const Tensor& any) {
    std::ostringstream text;
    text << operation.name << " of " << any.scalar_type();
    if (operation.type != c10d::OpType::ALLTOALL_BASE) text << " [" << any.numel() << ']';
    return text.str();
  }

  const intrusive_ptr<c10d::Store> store_;
  const intrusive_ptr<Options> options_;
  const intrusive_ptr<c10d::Backend> gloo_;
  std::unique_ptr<Communicator> communicator_;
  std::optional<c10::Device> device_;
  std::optional<c10::Stream> stream_;
  std::optional<std::vector<Step>> batch_;
  uint64_t operations_ = 0;
  const std::shared_ptr<int> graphs_ = std::make_shared<int>(0);  // shared with captured graphs that use the group
};

namespace py = pybind11;

intrusive_ptr<Nccl> make(const intrusive_ptr<c10d::Store>& store, int rank, int size, const intrusive_ptr<Nccl::Options>& options) {
  const auto module = py::module_::import("torch._C._distributed_c10d");
  const auto timeout = py::module_::import("datetime").attr("timedelta")(py::arg("milliseconds") = options->timeout.count());
  const auto inner = module.attr("PrefixStore")("gloo/", py::cast(store));
  const auto gloo = module.attr("ProcessGroupGloo")(inner, rank, size, py::arg("timeout") = timeout);
  return c10::make_intrusive<Nccl>(store, rank, size, options, gloo.cast<intrusive_ptr<c10d::Backend>>());
}

}  // namespace
}  // namespace emulated

PYBIND11_MODULE(emulated_nccl, module) {
  using emulated::Nccl;
  namespace py = pybind11;
  py::module_::import("torch._C._distributed_c10d");
  py::class_<Nccl, c10d::Backend, c10::intrusive_ptr<Nccl>> backend(module, "ProcessGroupNCCL");
  py::class_<Nccl::Options, c10d::Backend::Options, c10::intrusive_ptr<Nccl::Options>>(backend, "Options")
      .def(py::init([] { return c10::make_intrusive<Nccl::Options>(); }))
      .def_readwrite("is_high_priority_stream", &Nccl::Options::is_high_priority_stream);
  backend.def(py::init(&emulated::make));
}
