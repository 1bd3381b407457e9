#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "base/result.h"
#include "server/errors.h"
#include "server/http/exchange.h"

namespace quire::server {

class Admission;

// Counts the requests that the server works on, from their arrival to the end of their answer, for
// each client: an API key, or without keys a network address. Any thread.
class AdmissionControl : public std::enable_shared_from_this<AdmissionControl> {
 public:
  // Of one client at a time; 0: no limit.
  struct Limits {
    int64_t requests = 0;
    int64_t generations = 0;  // prompts times n, of all its requests
  };

  // Refused with status 429 when the client has as many requests as it may. The exchange is kept
  // until the admission ends.
  Result<std::shared_ptr<Admission>, ApiError> admit(uint64_t client, const Limits& limits,
                                                     http::ExchangePtr exchange);

  // False: some request is still at work after `timeout`.
  bool wait_until_none(std::chrono::milliseconds timeout) const;
  // The exchanges of all requests at work.
  std::vector<http::ExchangePtr> exchanges() const;

 private:
  friend class Admission;
  struct Usage {
    int64_t requests = 0, generations = 0;
  };

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<uint64_t, Usage> usage_;  // of clients with at least one request
  std::set<const Admission*> admissions_;
};

// One request's place; ends when it is destroyed.
class Admission {
 public:
  Admission(std::shared_ptr<AdmissionControl> control, uint64_t client,
            const AdmissionControl::Limits& limits, http::ExchangePtr exchange);
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // Says how many generations the request wants, once. Refused with status 429 if the client would
  // have more than it may, and with 400 if this request alone has.
  Result<void, ApiError> add_generations(int64_t count);

 private:
  friend class AdmissionControl;
  const std::shared_ptr<AdmissionControl> control_;
  const uint64_t client_;
  const AdmissionControl::Limits limits_;
  const http::ExchangePtr exchange_;
  int64_t generations_ = 0;
};

}  // namespace quire::server
