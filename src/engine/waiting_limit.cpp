#include "engine/waiting_limit.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace quire::engine {
namespace {

constexpr double kPaceMemory = 30;  // seconds
constexpr double kLongestWait = 600;

struct Most {
  int64_t ever = 0, now = 0;
};

// Of requests that are more than may ever wait, or that come when too much waits.
RequestError refusal(int64_t asked, const Most& most, const std::string& asks,
                     const std::string& what, const std::string& flag, int64_t retry_after) {
  using Kind = RequestError::Kind;
  if (asked > most.ever)
    return {
        .kind = Kind::kInvalid,
        .message = asks + ", but only " + std::to_string(most.ever) + " may wait (" + flag + ")",
        .param = ""};
  return {.kind = Kind::kOverloaded,
          .message = "too many " + what + " are waiting (limit " + std::to_string(most.now) + ")",
          .param = "",
          .retry_after = retry_after};
}

std::string answers_text(const WaitingLoad& load) {
  return "asks for " + std::to_string(load.requests) + " answers at once";
}

std::string tokens_text(const WaitingLoad& load) {
  return "the prompts have " + std::to_string(load.tokens) + " tokens";
}

void add(WaitingLoad& sum, const WaitingLoad& more) {
  sum.requests += more.requests;
  sum.tokens += more.tokens;
}

}  // namespace

std::optional<RequestError> WaitingLimit::join(const WaitingLoad& more,
                                               const WaitingTenant& tenant) {
  const WaitingLoad now = total();
  const int64_t requests = now.requests + more.requests - max_.requests;
  const int64_t tokens = max_.tokens == 0 ? 0 : now.tokens + more.tokens - max_.tokens;
  if (requests <= 0 && tokens <= 0) {
    if (tenant.beside_others)
      if (auto refused = check_share(more, tenant.id)) return refused;
    add(handed_in_, more);
    add(handed_in_by_[tenant.id], more);
    return std::nullopt;
  }
  const int64_t seconds = seconds_until({requests, tokens});
  if (requests > 0)
    return refusal(more.requests, {max_.requests, max_.requests}, answers_text(more), "requests",
                   "--max-num-queued-reqs", seconds);
  return refusal(more.tokens, {max_.tokens, max_.tokens}, tokens_text(more), "prompt tokens",
                 "--max-num-queued-tokens", seconds);
}

// Half of what others leave.
std::optional<RequestError> WaitingLimit::check_share(const WaitingLoad& more,
                                                      uint64_t tenant) const {
  WaitingLoad own;
  for (const LoadByTenant* loads : {&handed_in_by_, &taken_by_})
    if (const auto found = loads->find(tenant); found != loads->end()) add(own, found->second);
  const WaitingLoad all = total();
  const auto share = [](int64_t max, int64_t others) {
    return Most{.ever = (max + 1) / 2, .now = (max - others + 1) / 2};
  };
  const Most of_requests = share(max_.requests, all.requests - own.requests);
  const Most of_tokens = share(max_.tokens, all.tokens - own.tokens);
  const int64_t requests = own.requests + more.requests - of_requests.now;
  const int64_t tokens = max_.tokens == 0 ? 0 : own.tokens + more.tokens - of_tokens.now;
  if (requests <= 0 && tokens <= 0) return std::nullopt;
  const int64_t seconds = seconds_until({requests, tokens});
  if (requests > 0)
    return refusal(more.requests, of_requests, answers_text(more), "requests of this client",
                   "half of --max-num-queued-reqs for one client", seconds);
  return refusal(more.tokens, of_tokens, tokens_text(more), "prompt tokens of this client",
                 "half of --max-num-queued-tokens for one client", seconds);
}

void WaitingLimit::take() {
  for (const auto& [tenant, load] : handed_in_by_) add(taken_by_[tenant], load);
  handed_in_by_.clear();
  add(taken_, handed_in_);
  handed_in_ = {};
}

void WaitingLimit::update(const WaitingLoad& waiting, const QueueMoves& moves, TimePoint now,
                          LoadByTenant by_tenant) {
  if (updated_ && taken_.requests > 0) {
    const double seconds = seconds_between(*updated_, now);
    const double keep = std::exp(-seconds / kPaceMemory);
    pace_seconds_ = keep * pace_seconds_ + seconds;
    places_ += moves.ended - moves_.ended;
    const int64_t taken = std::min(places_, moves.started - moves_.started);
    places_ -= taken;
    pace_requests_ = keep * pace_requests_ + static_cast<double>(taken);
  }
  if (waiting.requests == 0) places_ = 0;
  updated_ = waiting.requests > 0 ? std::optional(now) : std::nullopt;
  moves_ = moves;
  taken_ = waiting;
  taken_by_ = std::move(by_tenant);
}

// A queue that has not moved yet counts as if one request had started in a second.
int64_t WaitingLimit::seconds_until(const WaitingLoad& left) const {
  const WaitingLoad now = total();
  double requests = static_cast<double>(left.requests);
  if (now.tokens > 0)
    requests =
        std::max(requests, static_cast<double>(left.tokens) * static_cast<double>(now.requests) /
                               static_cast<double>(now.tokens));
  const double seconds = requests * (pace_seconds_ + 1) / (pace_requests_ + 1);
  return static_cast<int64_t>(std::ceil(std::clamp(seconds, 1.0, kLongestWait)));
}

}  // namespace quire::engine
