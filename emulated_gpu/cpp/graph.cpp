// See graph.h.
#include "graph.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <cstring>
#include <mutex>

namespace emulated {
namespace {

struct Held {  // memory that a graph uses
  c10::Storage storage;
  int64_t uses = 1;  // of the graph itself, this one included
};

struct Graph {
  int origin = -1;           // stream number
  std::set<int> streams;     // that are captured
  bool valid = true, complete = false;
  std::vector<std::function<void()>> calls;
  std::map<c10::StorageImpl*, Held> held;
  std::map<Memory*, std::vector<char>> before;  // bytes that the capture has changed
};

std::recursive_mutex mutex;  // guards the open graph
std::atomic<Graph*> open{nullptr};
thread_local bool replaying = false;

void* address(const Memory* memory) { return memory->owner ? memory->owner.mutable_data() : memory->bytes.get(); }

c10::Stream stream_here() {
  return current_stream(c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->getDevice().index());
}

bool used_elsewhere(const Held& one) { return static_cast<int64_t>(one.storage.use_count()) > one.uses; }

void begin(Graph* graph) {
  const c10::Stream stream = stream_here();
  TORCH_CHECK(open.load() == nullptr, "emulated CUDA: another graph is being captured");
  TORCH_CHECK(!graph->complete, "emulated CUDA: this graph has been captured already");
  TORCH_CHECK(stream.id() != 0, "CUDA graphs must be captured on a non-default stream");
  graph->origin = number_of(stream);
  graph->streams = {graph->origin};
  open = graph;
}

void end(Graph* graph) {
  TORCH_CHECK(open.load() == graph, "emulated CUDA: this graph is not being captured");
  open = nullptr;
  const bool joined = all_joined(graph->origin, graph->streams);
  forget_launches(graph->streams);
  for (const auto& [memory, bytes] : graph->before) std::memcpy(address(memory), bytes.data(), bytes.size());
  graph->before.clear();
  for (auto& [impl, one] : graph->held) {
    Memory* memory = memory_of(one.storage);
    if (memory == nullptr || !memory->pooled) continue;
    std::memset(address(memory), 0xff, memory->num_bytes);  // nothing has been computed yet
    if (!used_elsewhere(one)) leave_to_graph(memory);
  }
  TORCH_CHECK(graph->valid, "CUDA error: operation failed due to a previous error during capture (emulated CUDA)");
  TORCH_CHECK(joined, "CUDA error: capturing stream has unjoined work (emulated CUDA)");
  graph->complete = true;
}

void replay(Graph* graph) {
  TORCH_CHECK(graph->complete, "emulated CUDA: a graph without a capture");
  refuse_in_capture("replay of a graph");
  raise_pending();
  for (const auto& [impl, one] : graph->held) {
    const Memory* memory = memory_of(one.storage);
    TORCH_CHECK(memory == nullptr || memory->pooled || used_elsewhere(one),
                "emulated CUDA: memory that the graph uses was freed after the capture (last written by ",
                memory == nullptr ? "" : memory->written_by, ")");
  }
  struct Replaying {
    Replaying() { replaying = true; }
    ~Replaying() { replaying = false; }
  };
  {
    const Replaying now;
    for (const auto& call : graph->calls) call();
  }
  count(LAUNCHES, 1, "graph");
}

template <typename Work>
int guarded(char* error, int room, Work work) {
  try {
    work();
    return 0;
  } catch (const c10::Error& raised) {
    std::strncpy(error, raised.what_without_backtrace(), static_cast<size_t>(room) - 1);
  } catch (const std::exception& raised) {
    std::strncpy(error, raised.what(), static_cast<size_t>(room) - 1);
  }
  return 1;
}

}  // namespace

bool is_capturing() { return open.load() != nullptr; }
bool in_replay() { return replaying; }

bool is_captured(c10::Stream stream) {
  const std::lock_guard<std::recursive_mutex> guard(mutex);
  const Graph* graph = open.load();
  return graph != nullptr && graph->streams.count(number_of(stream)) > 0;
}

bool is_captured_here() { return is_capturing() && is_captured(stream_here()); }

void refuse_in_capture(const char* call) {
  const std::lock_guard<std::recursive_mutex> guard(mutex);
  Graph* graph = open.load();
  if (graph == nullptr) return;
  graph->valid = false;
  TORCH_CHECK(false, "CUDA error: operation not permitted when stream is capturing (", call, " on the emulated device)");
}

at::Tensor frozen(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const at::AutoDispatchBelowADInplaceOrView below;
  if (!tensor.is_cuda()) return tensor.dim() == 0 ? tensor.clone() : tensor;  // a number is passed by value
  if (tensor.layout() != at::kStrided) return tensor;
  at::Tensor copy = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(tensor.storage()), c10::DispatchKeySet(c10::DispatchKey::CUDA), tensor.dtype());
  copy.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  if (tensor.is_conj()) copy._set_conj(true);
  if (tensor.is_neg()) copy._set_neg(true);
  const std::lock_guard<std::recursive_mutex> guard(mutex);
  if (Graph* graph = open.load()) {
    const auto [found, made] = graph->held.try_emplace(tensor.storage().unsafeGetStorageImpl());
    if (made) found->second.storage = tensor.storage();
    ++found->second.uses;
  }
  return copy;
}

void keep_bytes(const std::vector<Memory*>& written) {
  const std::lock_guard<std::recursive_mutex> guard(mutex);
  Graph* graph = open.load();
  if (graph == nullptr) return;
  for (Memory* memory : written) {
    if (memory->pooled || graph->before.count(memory) > 0) continue;
    const auto* first = static_cast<const char*>(address(memory));
    graph->before[memory] = {first, first + memory->num_bytes};
  }
}

void note(std::function<void()> call) {
  const std::lock_guard<std::recursive_mutex> guard(mutex);
  if (Graph* graph = open.load()) graph->calls.push_back(std::move(call));
}

void join_capture(c10::Stream stream) {
  const std::lock_guard<std::recursive_mutex> guard(mutex);
  if (Graph* graph = open.load()) graph->streams.insert(number_of(stream));
}

}  // namespace emulated

// --- for Python, by ctypes: each returns 0, or 1 and the error ---------------------------------------------------------
extern "C" {
void* emulated_graph_new() { return new emulated::Graph; }
void emulated_graph_delete(void* graph) {
  auto* deleted = static_cast<emulated::Graph*>(graph);
  emulated::open.compare_exchange_strong(deleted, nullptr);  // a capture that was not ended
  delete static_cast<emulated::Graph*>(graph);
}
int emulated_graph_begin(void* graph, char* error, int room) {
  return emulated::guarded(error, room, [&] { emulated::begin(static_cast<emulated::Graph*>(graph)); });
}
int emulated_graph_end(void* graph, char* error, int room) {
  return emulated::guarded(error, room, [&] { emulated::end(static_cast<emulated::Graph*>(graph)); });
}
int emulated_graph_replay(void* graph, char* error, int room) {
  return emulated::guarded(error, room, [&] { emulated::replay(static_cast<emulated::Graph*>(graph)); });
}
int emulated_is_capturing() { return emulated::is_captured_here(); }
}
