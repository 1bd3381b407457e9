#include "server/http/turns.h"

#include <utility>

namespace quire::server::http {

bool Turns::take(const std::string& client, Grant grant) {
  const std::scoped_lock lock(mutex_);
  if (open_) return true;
  if (free_ > 0) {
    --free_;
    return true;
  }
  auto& of_client = waiting_[client];
  if (of_client.empty()) order_.push_back(client);
  of_client.push_back(std::move(grant));
  return false;
}

void Turns::give_back() {
  Grant next;
  {
    const std::scoped_lock lock(mutex_);
    if (order_.empty()) {
      ++free_;
      return;
    }
    const auto of_client = waiting_.find(order_.front());
    next = std::move(of_client->second.front());
    of_client->second.pop_front();
    if (of_client->second.empty()) {
      waiting_.erase(of_client);
    } else {
      order_.push_back(std::move(order_.front()));
    }
    order_.pop_front();
  }
  next();
}

void Turns::open() {
  decltype(waiting_) waiting;
  {
    const std::scoped_lock lock(mutex_);
    open_ = true;
    waiting = std::exchange(waiting_, {});
    order_.clear();
  }
  for (auto& [client, grants] : waiting)
    for (auto& grant : grants) grant();
}

}  // namespace quire::server::http
