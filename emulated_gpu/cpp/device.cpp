// See device.h.
#include "graph.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>

namespace emulated {
namespace {

struct Copy {  // that the host has not waited for
  c10::Storage host;
  void* target;                // in host memory, or null for a copy to the device
  const void* source;          // in host memory, of a copy to the device
  std::vector<char> bytes;     // as they were when the copy was launched
  int stream;
  int64_t launched_at;
};

std::mutex mutex;  // guards all that follows, but for the atomics
std::map<int, Clock> clocks;
Clock host_clock;
std::vector<int> devices{0, 1, 2, 3, 4, 5, 6, 7};  // by stream number
std::map<const char*, size_t> pinned;  // start and length; outlives the copies, which unpin theirs when they go
std::deque<Copy> copies;
std::vector<std::string> pending;
std::array<int64_t, kMaxDevices> held{}, most{};

std::array<std::atomic<int64_t>, NUM_COUNTS> counts{};
using Observer = void (*)(int, int64_t, const char*);
std::atomic<Observer> observer{nullptr};
thread_local std::array<int, kMaxDevices> currents{};  // 0: the default stream

thread_local bool external_events = false;  // what is recorded now is an external event

int64_t nanoseconds_now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

void merge(Clock& into, const Clock& from) {
  for (const auto& [stream, at] : from) into[stream] = std::max(into[stream], at);
}

bool covers(const Clock& clock, int stream, int64_t at) {
  const auto found = clock.find(stream);
  return found != clock.end() && found->second >= at;
}

std::string name_of(int stream) {
  return stream < kMaxDevices ? "the default stream of cuda:" + std::to_string(stream)
                              : "stream " + std::to_string(stream);
}

// Finish those copies that the host knows to be over. Their host memory is let go of by the caller, without the lock:
// that may need Python's, or this one.
std::vector<c10::Storage> finish_copies() {
  std::vector<c10::Storage> done;
  for (auto copy = copies.begin(); copy != copies.end();) {
    if (!covers(host_clock, copy->stream, copy->launched_at)) { ++copy; continue; }
    if (copy->target != nullptr) std::memcpy(copy->target, copy->bytes.data(), copy->bytes.size());
    else if (std::memcmp(copy->source, copy->bytes.data(), copy->bytes.size()) != 0)
      pending.push_back("pinned host memory was written to before its copy to the device was over");
    done.push_back(std::move(copy->host));
    copy = copies.erase(copy);
  }
  return done;
}

void take_back(void* context) {
  auto* memory = static_cast<Memory*>(context);
  {
    const std::lock_guard<std::mutex> guard(mutex);
    if (memory->counted) held[memory->device] -= static_cast<int64_t>(memory->num_bytes);
    Clock known = clocks[memory->home];
    merge(known, host_clock);
    auto uses = memory->readers;
    if (memory->writer >= 0) uses[memory->writer] = std::max(uses[memory->writer], memory->written_at);
    for (const auto& [stream, at] : uses)
      if (!memory->pooled && stream != memory->home && memory->recorded.count(stream) == 0 && !covers(known, stream, at))
        pending.push_back("device memory of " + name_of(memory->home) + " was freed while " + name_of(stream) +
                          " may still use it: record_stream or a wait is missing (last written by " +
                          memory->written_by + ")");
  }
  delete memory;
}

c10::DataPtr device_pointer(Memory* memory, void* data, size_t num_bytes, int device) {
  memory->num_bytes = num_bytes;
  memory->device = device;
  memory->home = number_of(current_stream(device));
  memory->pooled = is_captured(current_stream(device));
  {
    const std::lock_guard<std::mutex> guard(mutex);
    held[device] += static_cast<int64_t>(num_bytes);
    most[device] = std::max(most[device], held[device]);
  }
  return {data, memory, &take_back, c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device))};
}

c10::Stream stream_of(int device, int id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(device)), id);
}

c10::DeviceIndex current_device() { return c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA)->getDevice().index(); }

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t num_bytes) override {
    auto* memory = new Memory;
    memory->bytes = c10::GetCPUAllocator()->allocate(num_bytes);
    return device_pointer(memory, memory->bytes.get(), num_bytes, current_device());
  }
  void copy_data(void* into, const void* from, size_t num_bytes) const override { std::memcpy(into, from, num_bytes); }
};

void unpin(void* context) {
  auto* bytes = static_cast<c10::DataPtr*>(context);
  {
    const std::lock_guard<std::mutex> guard(mutex);
    pinned.erase(static_cast<const char*>(bytes->get()));
  }
  delete bytes;
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t num_bytes) override {
    auto* bytes = new c10::DataPtr(c10::GetCPUAllocator()->allocate(std::max<size_t>(num_bytes, 1)));
    {
      const std::lock_guard<std::mutex> guard(mutex);
      pinned[static_cast<const char*>(bytes->get())] = std::max<size_t>(num_bytes, 1);
    }
    count(PINNED_BYTES, static_cast<int64_t>(num_bytes), "pin_memory");
    return {bytes->get(), bytes, &unpin, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* into, const void* from, size_t num_bytes) const override { std::memcpy(into, from, num_bytes); }
};

}  // namespace

int num_devices() {
  static const int number = [] {
    const char* asked = std::getenv("GNNEXP_EMULATED_GPUS");
    return asked == nullptr ? 1 : std::clamp(std::atoi(asked), 1, kMaxDevices);
  }();
  return number;
}

// --- memory -----------------------------------------------------------------------------------------------------
c10::Allocator* device_allocator() { static DeviceAllocator allocator; return &allocator; }
c10::Allocator* pinned_allocator() { static PinnedAllocator allocator; return &allocator; }

bool is_pinned(const void* address) {
  const std::lock_guard<std::mutex> guard(mutex);
  auto after = pinned.upper_bound(static_cast<const char*>(address));
  if (after == pinned.begin()) return false;
  --after;
  return static_cast<const char*>(address) < after->first + after->second;
}

c10::Storage adopt(const c10::Storage& host, c10::Device device) {
  auto* memory = new Memory;
  memory->owner = host;
  auto pointer = device_pointer(memory, host.mutable_data(), host.nbytes(), device.index());
  return {c10::Storage::use_byte_size_t(), host.nbytes(), std::move(pointer), device_allocator(), true};
}

Memory* memory_of(const c10::Storage& storage) {
  if (!storage || storage.device_type() != c10::DeviceType::CUDA) return nullptr;
  const auto& pointer = storage.data_ptr();
  return pointer.get_deleter() == &take_back ? static_cast<Memory*>(pointer.get_context()) : nullptr;
}

int64_t allocated_bytes(int device, bool peak) {
  const std::lock_guard<std::mutex> guard(mutex);
  return peak ? most[device] : held[device];
}

void reset_peak(int device) {
  const std::lock_guard<std::mutex> guard(mutex);
  most[device] = held[device];
}

// --- streams ----------------------------------------------------------------------------------------------------
int number_of(c10::Stream stream) { return stream.id() == 0 ? stream.device_index() : static_cast<int>(stream.id()); }

c10::Stream current_stream(int device) {
  return stream_of(device, currents[device]);
}

c10::Stream exchange_stream(c10::Stream stream) {
  const auto before = current_stream(stream.device_index());
  currents[stream.device_index()] = static_cast<int>(stream.id());
  return before;
}

c10::Stream new_stream(int device) {
  const std::lock_guard<std::mutex> guard(mutex);
  devices.push_back(device);
  return stream_of(device, static_cast<int>(devices.size()) - 1);
}

void launch(c10::Stream stream, const std::string& kernel, const std::vector<Memory*>& reads,
            const std::vector<Memory*>& writes) {
  const int own = number_of(stream);
  std::string wrong;
  {
    const std::lock_guard<std::mutex> guard(mutex);
    Clock& clock = clocks[own];
    merge(clock, host_clock);
    const int64_t now = ++clock[own];
    const auto check = [&](int other, int64_t at, const char* does, const std::string& by) {
      if (other >= 0 && other != own && !covers(clock, other, at) && wrong.empty())
        wrong = kernel + " on " + name_of(own) + " " + does + " memory that " + name_of(other) + " " + by +
                ", and has not waited for it";
    };
    for (auto* memory : reads) {
      check(memory->writer, memory->written_at, "reads", "wrote by " + memory->written_by);
      memory->readers[own] = now;
    }
    for (auto* memory : writes) {
      check(memory->writer, memory->written_at, "writes", "wrote by " + memory->written_by);
      for (const auto& [other, at] : memory->readers) check(other, at, "writes", "reads");
      memory->writer = own;
      memory->written_at = now;
      memory->written_by = kernel;
      memory->readers.clear();
    }
  }
  TORCH_CHECK(wrong.empty(), "emulated CUDA: ", wrong);
}

void copy_to_device_later(c10::Stream stream, const c10::Storage& host, const void* source, size_t num_bytes) {
  if (is_captured(stream)) return;
  const auto* first = static_cast<const char*>(source);
  const std::lock_guard<std::mutex> guard(mutex);
  const int own = number_of(stream);
  copies.push_back({host, nullptr, source, {first, first + num_bytes}, own, clocks[own][own]});
}

void copy_to_host_later(c10::Stream stream, const c10::Storage& host, void* target, const void* source,
                        size_t num_bytes) {
  if (is_captured(stream)) return;
  const auto* first = static_cast<const char*>(source);
  const std::lock_guard<std::mutex> guard(mutex);
  const int own = number_of(stream);
  copies.push_back({host, target, nullptr, {first, first + num_bytes}, own, clocks[own][own]});
  std::memset(target, 0xff, num_bytes);  // not a number, or -1, until the copy is over
}

// --- events and waits -------------------------------------------------------------------------------------------
void record(Event& event, c10::Stream stream) {
  const bool inside = is_captured(stream);
  if (inside && external_events) note([at = event.nanoseconds] { *at = nanoseconds_now(); });
  event.captured = inside && !external_events;
  const std::lock_guard<std::mutex> guard(mutex);
  event.clock = clocks[number_of(stream)];
  merge(event.clock, host_clock);
  *event.nanoseconds = nanoseconds_now();
  event.recorded = true;
}

void stream_waits(const Event& event, c10::Stream stream) {
  TORCH_CHECK(is_capturing() || !event.captured, "CUDA error: operation not permitted on an event last recorded in a "
              "capturing stream (emulated CUDA)");
  if (event.captured) join_capture(stream);
  else if (event.recorded && is_captured(stream)) refuse_in_capture("wait for an event that is not captured");
  const std::lock_guard<std::mutex> guard(mutex);
  merge(clocks[number_of(stream)], event.clock);
}

void host_waits(const Event& event) {
  std::vector<c10::Storage> done;
  {
    const std::lock_guard<std::mutex> guard(mutex);
    merge(host_clock, event.clock);
    done = finish_copies();
  }
  done.clear();
  raise_pending();
}

void host_waits(c10::Stream stream) {
  Event event;
  record(event, stream);
  host_waits(event);
}

void host_waits_for_device(int device) {
  Event event;
  {
    const std::lock_guard<std::mutex> guard(mutex);
    for (const auto& [stream, clock] : clocks)
      if (devices[stream] == device) merge(event.clock, clock);
  }
  host_waits(event);
}

void forget_launches(const std::set<int>& streams) {
  const std::lock_guard<std::mutex> guard(mutex);
  for (const int stream : streams) merge(host_clock, clocks[stream]);
}

bool all_joined(int origin, const std::set<int>& streams) {
  const std::lock_guard<std::mutex> guard(mutex);
  for (const int stream : streams)
    if (stream != origin && !covers(clocks[origin], stream, clocks[stream][stream])) return false;
  return true;
}

void leave_to_graph(Memory* memory) {
  const std::lock_guard<std::mutex> guard(mutex);
  if (memory->counted) held[memory->device] -= static_cast<int64_t>(memory->num_bytes);
  memory->counted = false;
}

void raise_pending() {
  std::string first;
  {
    const std::lock_guard<std::mutex> guard(mutex);
    if (!pending.empty()) { first = pending.front(); pending.clear(); }
  }
  TORCH_CHECK(first.empty(), "emulated CUDA: ", first);
}

void count(Count what, int64_t amount, const char* kernel) {
  if (is_capturing()) {  // it launches nothing
    if (what == WAITS || what == PINNED_BYTES) refuse_in_capture(kernel);
    return;
  }
  if (in_replay() && (what == LAUNCHES || what == STREAM_WAITS)) return;  // one launch, by the graph
  counts[what] += amount;
  if (const auto seen = observer.load()) seen(what, amount, kernel);
}

}  // namespace emulated

// --- for Python, by ctypes ---------------------------------------------------------------------------------------------
extern "C" {
int emulated_num_devices() { return emulated::num_devices(); }
int64_t emulated_count(int what) { return emulated::counts[what].load(); }
void emulated_reset_counts() { for (auto& one : emulated::counts) one = 0; }
void emulated_add(int what, int64_t amount, const char* kernel) {
  emulated::count(static_cast<emulated::Count>(what), amount, kernel);
}
// Host memory that a program registers, and gives back.
void emulated_register(const char* start, size_t num_bytes) {
  const std::lock_guard<std::mutex> guard(emulated::mutex);
  emulated::pinned[start] = num_bytes;
}
void emulated_unregister(const char* start) {
  const std::lock_guard<std::mutex> guard(emulated::mutex);
  emulated::pinned.erase(start);
}
void emulated_external_events(int on) { emulated::external_events = on != 0; }
void emulated_observe(emulated::Observer seen) { emulated::observer = seen; }
int64_t emulated_allocated_bytes(int device, int peak) { return emulated::allocated_bytes(device, peak != 0); }
void emulated_reset_peak(int device) { emulated::reset_peak(device); }
// The first error that could not be thrown where it was found, or nothing; at most `room` characters.
void emulated_take_pending(char* into, int room) {
  const std::lock_guard<std::mutex> guard(emulated::mutex);
  const std::string first = emulated::pending.empty() ? "" : emulated::pending.front();
  emulated::pending.clear();
  std::strncpy(into, first.c_str(), static_cast<size_t>(room) - 1);
}
}
