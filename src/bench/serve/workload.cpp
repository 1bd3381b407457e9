#include "bench/serve/workload.h"

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "bench/random.h"

namespace quire::bench {
namespace {

std::string body_of(const Workload& workload, const Prompt& prompt) {
  json::object body{{"model", workload.model},
                    {"max_tokens", prompt.output_len},
                    {"temperature", workload.temperature},
                    {"stream", true},
                    {"stream_options", {{"include_usage", true}}}};
  if (workload.ignore_eos) body["ignore_eos"] = true;
  if (is_chat(workload)) {
    body["messages"] = json::array{json::object{{"role", "user"}, {"content", prompt.text}}};
  } else if (workload.token_ids) {
    body["prompt"] = json::value_from(prompt.ids);
  } else {
    body["prompt"] = prompt.text;
  }
  if (!workload.extra_body.empty()) {
    const auto more = parse_json(workload.extra_body);
    if (!more || !more->is_object()) throw LoadError("--extra-body: it is no JSON object");
    for (const auto& field : more->get_object()) body[field.key()] = field.value();
  }
  return dump_json(body);
}

// Arrival times of a gamma process, stretched to end where the rate says, as vLLM does.
std::vector<double> arrivals(const Workload& workload, size_t count) {
  std::vector<double> times(count, 0.0);
  if (std::isinf(workload.request_rate)) return times;
  Random random(workload.dataset.seed, 0x61727269);
  double time = 0;
  for (double& t : times) {
    time += random.gamma(workload.burstiness);
    t = time;
  }
  const double stretch = static_cast<double>(count) / workload.request_rate / time;
  for (double& t : times) t *= stretch;
  return times;
}

}  // namespace

bool is_chat(const Workload& workload) { return workload.endpoint.ends_with("/chat/completions"); }

std::vector<LoadRequest> make_requests(const Workload& workload,
                                       const std::vector<Prompt>& prompts) {
  const std::vector<double> times = arrivals(workload, prompts.size());
  std::vector<LoadRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i)
    requests.push_back({.body = body_of(workload, prompts[i]),
                        .arrival = times[i],
                        .prompt_len = static_cast<int64_t>(prompts[i].ids.size())});
  return requests;
}

void warm_up(const Workload& workload, const LoadOptions& load, const text::Tokenizer& tokenizer) {
  if (workload.num_warmups == 0) return;
  DatasetOptions options = workload.dataset;
  if (options.name == "prefix_repetition") {
    options.random_input_len = options.prefix_len + options.suffix_len;
    options.random_output_len = options.prefix_output_len;
  }
  options.name = "random";
  options.num_prompts = workload.num_warmups;
  options.seed += 1000003;
  Workload at_once = workload;
  at_once.request_rate = std::numeric_limits<double>::infinity();
  for (const LoadRecord& record :
       run_load(load, make_requests(at_once, make_dataset(tokenizer, options))))
    if (!record.ok) throw LoadError("the warm-up failed: " + record.error);
}

}  // namespace quire::bench
