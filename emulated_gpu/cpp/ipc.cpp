// Device memory that other processes map, as with CUDA's IPC handles: its bytes are in shared memory behind a page
// that says whether the owner has freed it. Called by ipc.py, with addresses of c10::StorageImpl.
#include "device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <c10/core/StorageImpl.h>

#include <atomic>
#include <cstring>
#include <mutex>

namespace emulated {
namespace {

constexpr size_t kPage = 4096;

struct Mapping {
  char* start;    // of the page before the bytes
  size_t length;  // with that page
  int handle;     // the owner's file descriptor; -1 in other processes
};

std::mutex mutex;
std::map<const char*, Mapping*> opened;  // memory of other processes, by the address of its first byte

std::atomic<int>& freed(const Mapping& mapping) { return *reinterpret_cast<std::atomic<int>*>(mapping.start); }

void unmap(void* context) {
  auto* mapping = static_cast<Mapping*>(context);
  if (mapping->handle >= 0) {
    freed(*mapping) = 1;
    close(mapping->handle);
  } else {
    const std::lock_guard<std::mutex> guard(mutex);
    opened.erase(mapping->start + kPage);
  }
  munmap(mapping->start, mapping->length);
  delete mapping;
}

// Give a storage of the device the bytes in a file of shared memory.
bool remap(c10::StorageImpl* storage, int file, size_t num_bytes, int handle) {
  auto* memory = static_cast<Memory*>(storage->data_ptr().get_context());
  void* start = mmap(nullptr, kPage + num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (start == MAP_FAILED) return false;
  auto* mapping = new Mapping{static_cast<char*>(start), kPage + num_bytes, handle};
  char* bytes = mapping->start + kPage;
  if (handle >= 0) std::memcpy(bytes, storage->data(), num_bytes);
  const auto deleter = storage->data_ptr().get_deleter();
  c10::DataPtr before = storage->set_data_ptr(c10::DataPtr(bytes, memory, deleter, storage->device()));
  before.release_context();  // the new pointer has it
  memory->owner = c10::Storage();
  memory->bytes = c10::DataPtr(bytes, mapping, &unmap, c10::Device(c10::DeviceType::CPU));
  storage->set_nbytes(num_bytes);
  if (handle < 0) {
    const std::lock_guard<std::mutex> guard(mutex);
    opened[bytes] = mapping;
  }
  return true;
}

}  // namespace
}  // namespace emulated

extern "C" {
// The file descriptor of a storage's shared memory; -1 if it is not shared.
int emulated_shared_handle(c10::StorageImpl* storage) {
  auto* memory = static_cast<emulated::Memory*>(storage->data_ptr().get_context());
  if (memory->bytes.get_deleter() != &emulated::unmap) return -1;
  return static_cast<emulated::Mapping*>(memory->bytes.get_context())->handle;
}

// Move a storage's bytes into shared memory: the empty file `handle`, which the storage now owns.
int emulated_share(c10::StorageImpl* storage, int handle) {
  const size_t num_bytes = storage->nbytes();
  if (ftruncate(handle, static_cast<off_t>(emulated::kPage + num_bytes)) != 0) return 0;
  return emulated::remap(storage, handle, num_bytes, handle);
}

// Let an empty storage be another process's memory.
int emulated_open_shared(c10::StorageImpl* storage, int file, size_t num_bytes) {
  return emulated::remap(storage, file, num_bytes, -1);
}

int emulated_num_opened() {
  const std::lock_guard<std::mutex> guard(emulated::mutex);
  return static_cast<int>(emulated::opened.size());
}

// How many of the addresses are in other processes' memory; -1 if its owner has freed some of it.
int64_t emulated_peer_reads(const int64_t* addresses, const bool* read, int64_t count) {
  const std::lock_guard<std::mutex> guard(emulated::mutex);
  int64_t found = 0;
  for (int64_t place = 0; place < count; ++place) {
    if (!read[place]) continue;
    const auto* address = reinterpret_cast<const char*>(addresses[place]);
    auto after = emulated::opened.upper_bound(address);
    if (after == emulated::opened.begin()) continue;
    --after;
    const auto& mapping = *after->second;
    if (address >= mapping.start + mapping.length) continue;
    if (emulated::freed(mapping)) return -1;
    ++found;
  }
  return found;
}
}
