#pragma once
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace quire::server::http {

// Who may have what it has sent read and answered next. A few connections at a time do; of those
// that wait, each client (see client_of) gets one turn per round, whatever number of connections it
// has, and of its connections the one that has waited longest. While the others wait here, they are
// not in the threads' queue, where every step of a request would go behind them. Thread-safe.
class Turns {
 public:
  using Grant = std::function<void()>;

  explicit Turns(size_t at_once) : free_(at_once) {}

  // True: the turn is there. False: `grant` is called when it comes, on any thread.
  bool take(const std::string& client, Grant grant);
  // Ends a turn.
  void give_back();
  // From now on nobody waits.
  void open();

 private:
  std::mutex mutex_;
  size_t free_;
  bool open_ = false;
  std::map<std::string, std::deque<Grant>> waiting_;  // by client; none is empty
  std::deque<std::string> order_;                     // the clients that wait, next one first
};

}  // namespace quire::server::http
