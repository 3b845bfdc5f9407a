// What torch asks a CUDA build for: the device guard, and hooks. A CPU build has neither; see device.h.
#include "graph.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace emulated {
namespace {

thread_local c10::DeviceIndex current = 0;  // as on a real GPU: every thread starts on device 0

c10::DeviceIndex checked(c10::DeviceIndex index) {
  TORCH_CHECK(index < num_devices(), "CUDA error: invalid device ordinal");
  return index;
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }
  c10::Device getDevice() const override { return {c10::DeviceType::CUDA, current}; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  void setDevice(c10::Device device) const override { if (device.index() >= 0) current = checked(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { if (device.index() >= 0) current = device.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(num_devices()); }

  c10::Stream getStream(c10::Device device) const override { return current_stream(index_of(device)); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(c10::DeviceType::CUDA, index_of(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return new_stream(index_of(device)); }
  c10::Stream getNewStream(c10::Device device, int) const override { return new_stream(index_of(device)); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  bool queryStream(const c10::Stream& stream) const override { refuse_in_capture("query of a stream"); host_waits(stream); return true; }
  void synchronizeStream(const c10::Stream& stream) const override { count(WAITS, 1, "synchronize a stream"); host_waits(stream); }
  void synchronizeDevice(c10::DeviceIndex device) const override { count(WAITS, 1, "synchronize the device"); host_waits_for_device(device); }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    emulated::record(*static_cast<Event*>(*event), stream);
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    count(STREAM_WAITS, 1, "wait for an event");
    stream_waits(*static_cast<Event*>(event), stream);
  }
  bool queryEvent(void* event) const override {  // nothing is under way: whoever asks hears that it is over
    refuse_in_capture("query of an event");
    if (event != nullptr) host_waits(*static_cast<Event*>(event));
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    count(WAITS, 1, "synchronize an event");
    host_waits(*static_cast<Event*>(event));
  }
  double elapsedTime(void* first, void* last, c10::DeviceIndex) const override {
    const auto *from = static_cast<Event*>(first), *to = static_cast<Event*>(last);
    TORCH_CHECK(!from->captured && !to->captured, "CUDA error: operation not permitted on an event last recorded in a "
                "capturing stream (emulated CUDA)");
    return 1e-6 * static_cast<double>(*to->nanoseconds - *from->nanoseconds);
  }
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}  // the engine's own; see kernels.cpp

  static c10::DeviceIndex index_of(c10::Device device) { return device.index() < 0 ? current : device.index(); }
};

const c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::CUDA, new Guard());

struct Hooks final : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(num_devices()); }
  int getNumGPUs() const override { return num_devices(); }
  c10::DeviceIndex current_device() const override { return current; }
  c10::DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(c10::DeviceIndex device) const override { current = checked(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { const auto before = current; if (device >= 0) current = checked(device); return before; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  c10::Allocator* getCUDADeviceAllocator() const override { return device_allocator(); }
  void deviceSynchronize(c10::DeviceIndex device) const override { count(WAITS, 1, "synchronize the device"); host_waits_for_device(device); }
};

}  // namespace
}  // namespace emulated

namespace at {  // the registry's names are there
using emulated_hooks = emulated::Hooks;
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", emulated_hooks)
}  // namespace at
