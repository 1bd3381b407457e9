#include "cli/bench_offline.h"

#include "base/clock.h"
#include "base/error.h"
#include "cli/bench_random.h"
#include "cli/token_queue.h"

namespace quire::cli {

OfflineResult run_offline(engine::Engine& engine, const std::vector<OfflineRequest>& requests) {
  TokenQueue queue;
  OfflineResult result;
  std::vector<engine::Request> submitted(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    engine::Request& request = submitted[i];
    request.prompt = requests[i].prompt;
    request.sampling.temperature = 0.0f;
    request.sampling.max_tokens = requests[i].output_len;
    request.sampling.ignore_eos = true;
    request.sink = queue.sink();
    result.prompt_tokens += static_cast<int64_t>(request.prompt.size());
  }
  const TimePoint start = Clock::now();
  const auto ids = engine.submit_all(std::move(submitted));
  if (!ids) throw LoadError("bench: " + ids.error().message);
  size_t finished = 0, begun = 0;
  while (finished < requests.size()) {
    const engine::TokenEvent event = queue.wait();
    result.output_tokens += static_cast<int64_t>(event.tokens.size());
    if (!event.error.empty()) throw LoadError("bench: a request failed: " + event.error);
    if (event.stats.output_tokens == 1 && ++begun == requests.size()) {
      result.all_started = seconds_since(start);
      result.produced_before = result.output_tokens;
    }
    if (event.finish) ++finished;
  }
  result.seconds = seconds_since(start);
  return result;
}

std::vector<OfflineRequest> random_requests(int64_t count, int64_t input_len, int64_t output_len,
                                            int64_t vocab_size, uint64_t seed) {
  std::vector<OfflineRequest> requests(static_cast<size_t>(count));
  BenchRandom random(seed, 0);
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

}  // namespace quire::cli
