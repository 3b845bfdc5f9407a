// In which order the ranks launch NCCL's operations. NCCL asks for one order, of all communicators of a device together,
// on all ranks: each operation occupies the device until its peers have come, so that two in different orders can wait
// for each other for ever. It does not check that, and usually it goes well.
#pragma once
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace emulated {

// What a rank tells its peers of one operation.
struct Ticket {
  std::string call;                       // which operation, and what it carries: the same on all ranks
  std::map<std::string, int64_t> before;  // operations launched before on each of the rank's other communicators
};

// One rank's communicator, as far as order goes.
class Communicator {
 public:
  // `gpu`: of this rank. Returns when all ranks have made it; throws where two of them are on one GPU.
  Communicator(std::string name, c10::intrusive_ptr<c10d::Store> store, int rank, std::vector<int64_t> ranks, int gpu,
               std::chrono::milliseconds timeout);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // All ranks have come to their next operation, and it is the same one; throws where orders differ.
  void meet(const std::string& call);

  std::string title() const;  // for messages

 private:
  Ticket ticket_of(int peer, int64_t number, const Ticket& own);
  void check_order(int peer, const Ticket& theirs, const Ticket& own) const;
  void look_for_another_order(int peer, int64_t number, const Ticket& own);
  std::string key(int64_t number, int rank) const;
  bool await(const std::string& key, std::chrono::milliseconds limit);

  const std::string name_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const std::vector<int64_t> ranks_;
  const std::chrono::milliseconds timeout_;
  int64_t launched_ = 0;
};

// An operation of the calling thread, until it is enqueued. Throws while another thread enqueues one: NCCL is not safe
// then, whatever the communicators, and the order of launches would be chance.
class Launching {
 public:
  explicit Launching(const std::string& what);
  ~Launching();
  Launching(const Launching&) = delete;
  Launching& operator=(const Launching&) = delete;
};

}  // namespace emulated
