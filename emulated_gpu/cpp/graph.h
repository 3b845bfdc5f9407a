// CUDA graphs of the emulated GPUs: what is launched on a captured stream is noted, and a replay does it again.
//
// A replay runs the same kernels on the same memory, and writes results to the memory of the captured results. So what
// the host computed during the capture (a number, an address, a size) is the same in every replay, as on a real GPU.
#pragma once
#include "device.h"

#include <ATen/core/Tensor.h>

#include <functional>

namespace emulated {

bool is_capturing();                      // whether a graph is being captured, by any thread
bool is_captured(c10::Stream stream);     // whether what is launched on the stream belongs to the graph
bool is_captured_here();                  // the same of the calling thread's current stream
void refuse_in_capture(const char* call); // throws during a capture: the graph is then invalid, as CUDA has it
bool in_replay();                         // of the calling thread

// The tensor's memory and shape as they are now: another tensor that shares neither with what becomes of `tensor`.
// The graph keeps the memory, and notes that it needs it.
at::Tensor frozen(const at::Tensor& tensor);
// A capture changes nothing: the bytes are as before when it ends. Called before a captured kernel writes.
void keep_bytes(const std::vector<Memory*>& written);
void note(std::function<void()> call);    // what a replay does
void join_capture(c10::Stream stream);    // it waits for captured work, so it is captured too

at::Tensor bytes_of(const at::Tensor& tensor);  // a host tensor over the bytes of a device tensor

}  // namespace emulated
