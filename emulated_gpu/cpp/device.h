// State of the emulated GPUs: streams and what they have waited for, memory and who uses it, counts.
//
// Nothing runs asynchronously here: each kernel is computed by the CPU when it is launched. Which order a real GPU
// guarantees is tracked by vector clocks instead: clock[s][t] is the last launch of stream t that is known to be over
// when the next launch of stream s begins. A use of memory that this order does not cover is an error, as it would be
// a race on a real GPU.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace emulated {

constexpr int kMaxDevices = 8;  // stream numbers below this are the default streams of the devices

enum Count : int {
  LAUNCHES, WAITS, STREAM_WAITS, H2D_COPIES, H2D_BYTES, PAGEABLE_H2D_BYTES, D2H_COPIES, D2H_BYTES, PINNED_BYTES,
  HOST_READ_BYTES, PEER_READ_BYTES, NUM_COUNTS
};

using Clock = std::map<int, int64_t>;  // launches that are known to be over, by stream number

// What an address of device memory is, and who uses it. Lives in the context of its DataPtr.
struct Memory {
  c10::DataPtr bytes;               // in host memory
  c10::Storage owner;               // or a result of a CPU kernel, which has them
  size_t num_bytes = 0;
  int device = 0;
  int home = 0;                     // the stream that it was allocated on, which gets it back
  int writer = -1;                  // the last stream that wrote to it, and in which launch
  int64_t written_at = 0;
  std::string written_by;
  std::map<int, int64_t> readers;   // streams that have read it since, and in which launch last
  std::set<int> recorded;           // streams named by record_stream
  bool pooled = false;              // belongs to a captured graph: replays write it again
  bool counted = true;              // whether a program holds it, and not only a graph
};

int num_devices();

// Device memory. `adopt` makes the storage of a CPU result device memory without a copy.
c10::Allocator* device_allocator();
c10::Allocator* pinned_allocator();
bool is_pinned(const void* address);
c10::Storage adopt(const c10::Storage& host, c10::Device device);
Memory* memory_of(const c10::Storage& storage);  // null if it is not device memory
int64_t allocated_bytes(int device, bool peak);
void reset_peak(int device);

// Streams, of the calling thread.
c10::Stream current_stream(int device);
c10::Stream exchange_stream(c10::Stream stream);
c10::Stream new_stream(int device);
int number_of(c10::Stream stream);

// A kernel on `stream` that reads and writes memory; throws where another stream's use of it may not be over.
void launch(c10::Stream stream, const std::string& kernel, const std::vector<Memory*>& reads,
            const std::vector<Memory*>& writes);

// Copies between pinned host memory and the device that the host does not wait for. The host's bytes of a copy to the
// device must not change before the copy is known to be over; those of a copy from the device are there only then.
void copy_to_device_later(c10::Stream stream, const c10::Storage& host, const void* source, size_t num_bytes);
void copy_to_host_later(c10::Stream stream, const c10::Storage& host, void* target, const void* source,
                        size_t num_bytes);

// Events and waits.
// An event that is recorded during a capture is a part of the graph, unless it is external: replays then record it.
struct Event {
  Clock clock;
  std::shared_ptr<int64_t> nanoseconds = std::make_shared<int64_t>(0);
  bool recorded = false, captured = false;
};
void record(Event& event, c10::Stream stream);
void stream_waits(const Event& event, c10::Stream stream);
void host_waits(const Event& event);
void host_waits(c10::Stream stream);
void host_waits_for_device(int device);
// For graphs: what captured streams have launched never ran, and whether the first one waits for all others.
void forget_launches(const std::set<int>& streams);
bool all_joined(int origin, const std::set<int>& streams);
void leave_to_graph(Memory* memory);  // a program does not hold it any more

void raise_pending();  // errors found where nothing could be thrown

void count(Count what, int64_t amount, const char* kernel);

}  // namespace emulated
