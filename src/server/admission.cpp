#include "server/admission.h"

namespace quire::server {
namespace {

ApiError too_many(const char* what, int64_t limit, const char* flag) {
  return {429,
          "Too many " + std::string(what) + " of this client at a time: the limit is " +
              std::to_string(limit) + " (" + flag + ")",
          ""};
}

}  // namespace

Result<std::shared_ptr<Admission>, ApiError> AdmissionControl::admit(uint64_t client,
                                                                     const Limits& limits,
                                                                     http::ExchangePtr exchange) {
  const std::scoped_lock lock(mutex_);
  Usage& usage = usage_[client];
  if (limits.requests > 0 && usage.requests >= limits.requests)
    return Err{too_many("requests", limits.requests, "--max-concurrent-requests-per-key")};
  ++usage.requests;
  auto admission =
      std::make_shared<Admission>(shared_from_this(), client, limits, std::move(exchange));
  admissions_.insert(admission.get());
  return admission;
}

bool AdmissionControl::wait_until_none(std::chrono::milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return admissions_.empty(); });
}

std::vector<http::ExchangePtr> AdmissionControl::exchanges() const {
  const std::scoped_lock lock(mutex_);
  std::vector<http::ExchangePtr> exchanges;
  for (const Admission* admission : admissions_) exchanges.push_back(admission->exchange_);
  return exchanges;
}

Admission::Admission(std::shared_ptr<AdmissionControl> control, uint64_t client,
                     const AdmissionControl::Limits& limits, http::ExchangePtr exchange)
    : control_(std::move(control)),
      client_(client),
      limits_(limits),
      exchange_(std::move(exchange)) {}

Admission::~Admission() {
  const std::scoped_lock lock(control_->mutex_);
  const auto usage = control_->usage_.find(client_);
  usage->second.generations -= generations_;
  if (--usage->second.requests == 0) control_->usage_.erase(usage);
  control_->admissions_.erase(this);
  control_->changed_.notify_all();
}

Result<void, ApiError> Admission::add_generations(int64_t count) {
  constexpr const char* kFlag = "--max-generations-per-key";
  const std::scoped_lock lock(control_->mutex_);
  int64_t& used = control_->usage_[client_].generations;
  if (limits_.generations > 0 && count > limits_.generations) {
    return Err{ApiError{400,
                        "The request asks for " + std::to_string(count) +
                            " generations (prompts times `n`); one client may have " +
                            std::to_string(limits_.generations) + " at a time (" + kFlag + ")",
                        "n"}};
  }
  if (limits_.generations > 0 && used + count > limits_.generations)
    return Err{too_many("generations (prompts times `n`)", limits_.generations, kFlag)};
  used += count;
  generations_ += count;
  return {};
}

}  // namespace quire::server
