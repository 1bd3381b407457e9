#pragma once
#include <cstdint>
#include <map>
#include <optional>

#include "base/clock.h"
#include "engine/request.h"

namespace quire::engine {

struct WaitingLoad {
  int64_t requests = 0, tokens = 0;  // the tokens of their prompts
};

// Requests that have begun to run, and those of them that have ended.
struct QueueMoves {
  int64_t started = 0, ended = 0;
};

// Who asks. `beside_others`: of what others leave of the queue a tenant gets at most half. So there
// is room for one that comes, however many have taken theirs.
struct WaitingTenant {
  uint64_t id = 0;
  bool beside_others = false;
};

using LoadByTenant = std::map<uint64_t, WaitingLoad>;

// Knows how much waits, and says who may join. Requests wait in two places: handed in and not yet
// taken by the engine thread, and in the scheduler. Both are counted at every moment, so there are
// never more than the limits allow (preempted requests count too, but are not refused). Not
// thread-safe: the lock of the engine's mailbox guards it.
class WaitingLimit {
 public:
  // max_tokens 0: no limit.
  explicit WaitingLimit(WaitingLoad max) : max_(max) {}

  // Counts requests as handed in; or says why they may not wait, and counts nothing.
  std::optional<RequestError> join(const WaitingLoad& more, const WaitingTenant& tenant = {});
  // The engine thread has taken what was handed in.
  void take();
  // What waits in the scheduler now, and what has happened since the beginning.
  void update(const WaitingLoad& waiting, const QueueMoves& moves, TimePoint now,
              LoadByTenant by_tenant = {});

  WaitingLoad total() const {
    return {handed_in_.requests + taken_.requests, handed_in_.tokens + taken_.tokens};
  }

 private:
  // Seconds until so much has left the queue, by its pace: 1 to 600.
  int64_t seconds_until(const WaitingLoad& left) const;

  std::optional<RequestError> check_share(const WaitingLoad& more, uint64_t tenant) const;

  WaitingLoad max_, handed_in_, taken_;
  LoadByTenant handed_in_by_, taken_by_;
  // The pace, while anything waits: requests started in places of others that had ended (those that
  // found free places say nothing of when the next one can start), in so many seconds. Older ones
  // count less.
  double pace_requests_ = 0, pace_seconds_ = 0;
  QueueMoves moves_;
  int64_t places_ = 0;  // of requests that have ended while others waited, not taken yet
  std::optional<TimePoint> updated_;  // none while nothing waits
};

}  // namespace quire::engine
