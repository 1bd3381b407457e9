#pragma once
#include <limits>
#include <string>
#include <vector>

#include "bench/dataset.h"
#include "bench/serve/client.h"

namespace quire::bench {

// What a load test sends, and when. vLLM's names and defaults.
struct Workload {
  std::string endpoint = "/v1/completions";
  std::string model;  // the name that the server knows
  DatasetOptions dataset;
  bool token_ids = false, ignore_eos = false;
  double temperature = 0;
  double request_rate = std::numeric_limits<double>::infinity(), burstiness = 1;
  int64_t num_warmups = 0;
  std::string extra_body;  // a JSON object whose fields join every body
};

bool is_chat(const Workload& workload);

// Throws LoadError for an extra_body that is no object, as the next.
std::vector<LoadRequest> make_requests(const Workload& workload,
                                       const std::vector<Prompt>& prompts);

// Sends the warm-ups: prompts of their own, so that the measured ones find no cache of theirs.
// Throws LoadError if one fails.
void warm_up(const Workload& workload, const LoadOptions& load, const text::Tokenizer& tokenizer);

}  // namespace quire::bench
