// See order.h.
#include "order.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <sstream>
#include <thread>

namespace emulated {
namespace {

using std::chrono::milliseconds;

std::mutex mutex;  // guards what follows, and each communicator's count
std::map<std::string, Communicator*> communicators;  // of this process, by name
std::thread::id launching;                           // the thread, or none
std::string launches;                                // what it launches

constexpr milliseconds kLook{50};             // how often a rank that waits looks for another order
constexpr std::chrono::microseconds kPause{300};  // between two questions whether a peer has come

std::vector<uint8_t> packed(const Ticket& ticket) {
  std::ostringstream text;
  text << ticket.call << '\n';
  for (const auto& [name, count] : ticket.before) text << name << ' ' << count << '\n';
  const std::string all = text.str();
  return {all.begin(), all.end()};
}

Ticket unpacked(const std::vector<uint8_t>& bytes) {
  std::istringstream text(std::string(bytes.begin(), bytes.end()));
  Ticket ticket;
  std::getline(text, ticket.call);
  std::string name;
  for (int64_t count = 0; text >> name >> count;) ticket.before[name] = count;
  return ticket;
}

std::string different_orders(const std::string& one, const std::string& other, int before_on, int after_on) {
  return "emulated NCCL: ranks launch in different orders: " + one + " comes before " + other + " on rank " +
         std::to_string(before_on) + " and after it on rank " + std::to_string(after_on) +
         ". GPUs may wait for each other for ever";
}

}  // namespace

Communicator::Communicator(std::string name, c10::intrusive_ptr<c10d::Store> store, int rank,
                           std::vector<int64_t> ranks, int gpu, milliseconds timeout)
    : name_(std::move(name)), store_(std::move(store)), rank_(rank), ranks_(std::move(ranks)), timeout_(timeout) {
  store_->set("gpu/" + std::to_string(rank_), std::vector<uint8_t>{static_cast<uint8_t>(gpu)});
  for (int peer = 0; peer < static_cast<int>(ranks_.size()); ++peer) {
    const std::string theirs = "gpu/" + std::to_string(peer);
    TORCH_CHECK_WITH(DistBackendError, await(theirs, timeout_), "emulated NCCL: rank ", peer, " of ", title(),
                     " has not come to make the communicator: all ranks take part in its first operation");
    TORCH_CHECK_WITH(DistBackendError, peer == rank_ || store_->get(theirs)[0] != gpu,
                     "emulated NCCL: duplicate GPU: ranks ", rank_, " and ", peer, " of ", title(),
                     " are both on cuda:", gpu);
  }
  const std::lock_guard<std::mutex> guard(mutex);
  communicators[name_] = this;
}

Communicator::~Communicator() {
  const std::lock_guard<std::mutex> guard(mutex);
  const auto found = communicators.find(name_);
  if (found != communicators.end() && found->second == this) communicators.erase(found);
}

std::string Communicator::title() const {
  std::ostringstream text;
  text << "group " << name_ << " (ranks";
  for (const auto rank : ranks_) text << ' ' << rank;
  text << ')';
  return text.str();
}

std::string Communicator::key(int64_t number, int rank) const {
  return "launch/" + std::to_string(number) + "/" + std::to_string(rank);
}

// Asks again and again: a store that waits keeps its other threads from asking, and warns of every limit that passes.
bool Communicator::await(const std::string& key, milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!store_->check({key})) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

void Communicator::meet(const std::string& call) {
  Ticket own{call, {}};
  int64_t number = 0;
  {
    const std::lock_guard<std::mutex> guard(mutex);
    number = ++launched_;
    for (const auto& [name, other] : communicators)
      if (other != this) own.before[name] = other->launched_;
  }
  store_->set(key(number, rank_), packed(own));
  for (int peer = 0; peer < static_cast<int>(ranks_.size()); ++peer) {
    if (peer == rank_) continue;
    const Ticket theirs = ticket_of(peer, number, own);
    TORCH_CHECK_WITH(DistBackendError, theirs.call == own.call, "emulated NCCL: operation ", number, " of ", title(),
                     " is not the same on all ranks: rank ", rank_, " launches ", own.call, ", rank ", peer, " ",
                     theirs.call);
    check_order(peer, theirs, own);
  }
  store_->deleteKey(key(number - 1, rank_));  // all peers are over with it: they have come here
}

Ticket Communicator::ticket_of(int peer, int64_t number, const Ticket& own) {
  const auto end = std::chrono::steady_clock::now() + timeout_;
  while (!await(key(number, peer), kLook)) {
    look_for_another_order(peer, number, own);
    TORCH_CHECK_WITH(DistBackendError, std::chrono::steady_clock::now() < end, "emulated NCCL: rank ", peer,
                     " has not come to operation ", number, " of ", title(), ", ", own.call);
  }
  return unpacked(store_->get(key(number, peer)));
}

void Communicator::check_order(int peer, const Ticket& theirs, const Ticket& own) const {
  for (const auto& [name, count] : own.before) {
    const auto found = theirs.before.find(name);  // of communicators that both are in
    if (found == theirs.before.end() || found->second == count) continue;
    const bool peers_first = found->second > count;
    TORCH_CHECK_WITH(DistBackendError, false,
                     different_orders("an operation of group " + name, own.call + " of " + title(),
                                      peers_first ? peer : rank_, peers_first ? rank_ : peer));
  }
}

// The peer does not come: it may wait for this rank in an operation of another communicator, that comes later here.
void Communicator::look_for_another_order(int peer, int64_t number, const Ticket& own) {
  struct Place { std::string key, title; c10::intrusive_ptr<c10d::Store> store; };
  std::vector<Place> places;  // where the peer would have said so
  {
    const std::lock_guard<std::mutex> guard(mutex);
    for (const auto& [name, other] : communicators) {
      const auto before = own.before.find(name);
      if (other == this || before == own.before.end()) continue;
      for (size_t place = 0; place < other->ranks_.size(); ++place)
        if (other->ranks_[place] == ranks_[peer])
          places.push_back({other->key(before->second + 1, static_cast<int>(place)), other->title(), other->store_});
    }
  }
  for (const auto& place : places) {
    if (!place.store->check({place.key})) continue;
    const Ticket theirs = unpacked(place.store->get(place.key));
    const auto found = theirs.before.find(name_);
    TORCH_CHECK_WITH(DistBackendError, found == theirs.before.end() || found->second >= number,
                     different_orders(theirs.call + " of " + place.title, own.call + " of " + title(), peer, rank_));
  }
}

Launching::Launching(const std::string& what) {
  const std::lock_guard<std::mutex> guard(mutex);
  TORCH_CHECK_WITH(DistBackendError, launching == std::thread::id(), "emulated NCCL: two threads launch at once: ",
                   launches, " and ", what, ". NCCL allows one at a time, also on different groups");
  launching = std::this_thread::get_id();
  launches = what;
}

Launching::~Launching() {
  const std::lock_guard<std::mutex> guard(mutex);
  launching = std::thread::id();
}

}  // namespace emulated
