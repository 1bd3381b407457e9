#include "bench/engine/offline.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "bench/random.h"
#include "bench/stats.h"
#include "engine/token_queue.h"

namespace quire::bench {

namespace {

engine::Request greedy(const OfflineRequest& asked) {
  engine::Request request;
  request.prompt = asked.prompt;
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = asked.output_len;
  request.sampling.ignore_eos = true;
  return request;
}

// When tokens came, of all requests. Those that come in one step stand side by side: their memory
// is the engine's thread's to touch, and as little of it as can be.
class TokenTimes {
 public:
  explicit TokenTimes(const std::vector<OfflineRequest>& requests) : counts_(requests.size()) {
    int64_t longest = 0;
    for (const OfflineRequest& request : requests) longest = std::max(longest, request.output_len);
    times_.resize(static_cast<size_t>(longest) * requests.size());
  }
  void add(size_t request, size_t tokens, double time) {
    for (size_t i = 0; i < tokens; ++i)
      times_[counts_[request]++ * counts_.size() + request] = time;
  }
  std::vector<double> of(size_t request) const {
    std::vector<double> own;
    for (size_t i = 0; i < counts_[request]; ++i)
      own.push_back(times_[i * counts_.size() + request]);
    return own;
  }

 private:
  std::vector<size_t> counts_;
  std::vector<double> times_;  // of every request's first token, then of the second ones, ...
};

}  // namespace

OfflineResult run_offline(engine::Engine& engine, const std::vector<OfflineRequest>& requests) {
  engine::TokenQueue queue;
  OfflineResult result;
  TokenTimes token_times(requests);
  std::vector<engine::Request> submitted;
  const TimePoint start = Clock::now();
  const auto listen = [start, &token_times, pass_on = queue.sink()](engine::TokenEvent&& event,
                                                                    size_t request) {
    token_times.add(request, event.tokens.size(), seconds_between(start, event.known));
    if (event.finish) pass_on(std::move(event));
  };
  for (size_t i = 0; i < requests.size(); ++i) {
    engine::Request& request = submitted.emplace_back(greedy(requests[i]));
    // This thread is woken for ends alone: waking it for every token would be most of what the
    // engine's thread does in a step of many rows.
    request.sink = [&listen, i](engine::TokenEvent&& event) { listen(std::move(event), i); };
    result.prompt_tokens += static_cast<int64_t>(requests[i].prompt.size());
  }
  const auto ids = engine.submit_all(std::move(submitted));
  if (!ids) throw LoadError("bench: " + ids.error().message);
  // The first; thrown when all have ended: until then the engine's thread writes to what is here.
  std::string error;
  for (size_t finished = 0; finished < requests.size(); ++finished) {
    engine::TokenEvent event = queue.wait();
    if (error.empty()) error = std::move(event.error);
  }
  if (!error.empty()) throw LoadError("bench: a request failed: " + error);
  result.seconds = seconds_since(start);
  std::vector<std::vector<double>> times;  // of each request's tokens
  for (size_t i = 0; i < requests.size(); ++i) times.push_back(token_times.of(i));
  for (const std::vector<double>& own : times)
    result.output_tokens += static_cast<int64_t>(own.size());
  for (const std::vector<double>& own : times)
    if (!own.empty()) result.all_started = std::max(result.all_started, own.front());
  result.decode_rate = decode_rate(times);
  return result;
}

void add_device(const engine::Engine& engine, json::object& figures) {
  const engine::EngineStats stats = engine.stats();
  figures["device"] = stats.device;
  figures["device_description"] = stats.device_description;
}

std::string rate_text(std::optional<double> rate) {
  if (!rate) return "too short";
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", *rate);
  return text;
}

std::vector<OfflineRequest> random_requests(int64_t count, int64_t input_len, int64_t output_len,
                                            int64_t vocab_size, uint64_t seed) {
  std::vector<OfflineRequest> requests(static_cast<size_t>(count));
  Random random(seed, 0);
  for (OfflineRequest& request : requests) {
    request.output_len = output_len;
    for (int64_t i = 0; i < input_len; ++i)
      request.prompt.push_back(
          static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab_size))));
  }
  return requests;
}

void check_lengths(const engine::Engine& engine, const std::vector<OfflineRequest>& requests) {
  for (const OfflineRequest& request : requests) {
    const int64_t length = static_cast<int64_t>(request.prompt.size()) + request.output_len;
    if (length > engine.max_model_len())
      throw LoadError("a prompt and its output have " + std::to_string(length) +
                      " tokens, over the model's " + std::to_string(engine.max_model_len()) +
                      "; lower --input-len or --output-len, or raise --max-model-len");
  }
}

}  // namespace quire::bench
