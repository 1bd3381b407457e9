#include "server/metrics.h"

#include <prometheus/text_serializer.h>

#include <ctime>
#include <limits>

#include "server/log.h"
#include "server/openai/answer.h"
#include "server/process_metrics.h"

namespace quire::server {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

// vLLM's buckets (vllm/v1/metrics/loggers.py), so that quantiles of the two can be compared.
const std::vector<double> kFirstTokenBuckets = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                                0.25,  0.5,   0.75, 1.0,  2.5,  5.0,  7.5,  10.0,
                                                20.0,  40.0,  80.0, 160,  640,  2560};
const std::vector<double> kTokenTimeBuckets = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                                               0.3,  0.4,   0.5,  0.75,  1.0, 2.5,  5.0,
                                               7.5,  10.0,  20.0, 40.0,  80.0};
const std::vector<double> kRequestTimeBuckets = {0.3,  0.5,  0.8,  1.0,   1.5,   2.0,    2.5,
                                                 5.0,  10.0, 15.0, 20.0,  30.0,  40.0,   50.0,
                                                 60.0, 120,  240,  480.0, 960.0, 1920.0, 7680.0};

// 1, 2, 5, 10, 20, 50, ... up to `max`.
std::vector<double> token_buckets(int64_t max) {
  std::vector<double> buckets;
  for (double scale = 1;; scale *= 10) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      if (digit * scale > static_cast<double>(max) && !buckets.empty()) return buckets;
      buckets.push_back(digit * scale);
    }
  }
}

// Collects single values in the form that the serialiser takes.
class Snapshot {
 public:
  explicit Snapshot(const prometheus::Labels& labels) : labels_(labels) {}

  void gauge(const char* name, const char* help, double value,
             const prometheus::Labels& more = {}) {
    prometheus::ClientMetric metric;
    metric.gauge.value = value;
    add(name, help, MetricType::Gauge, std::move(metric), more);
  }
  void histogram(const char* name, const char* help, const engine::StepTokens& values) {
    prometheus::ClientMetric metric;
    uint64_t count = 0;
    for (size_t i = 0; i < values.counts.size(); ++i) {
      count += static_cast<uint64_t>(values.counts[i]);
      const bool last = i == values.kBounds.size();
      metric.histogram.bucket.push_back({count, last ? std::numeric_limits<double>::infinity()
                                                     : static_cast<double>(values.kBounds[i])});
    }
    metric.histogram.sample_count = count;
    metric.histogram.sample_sum = static_cast<double>(values.sum);
    add(name, help, MetricType::Histogram, std::move(metric), {});
  }
  void counter(const char* name, const char* help, auto value,
               const prometheus::Labels& more = {}) {
    prometheus::ClientMetric metric;
    metric.counter.value = static_cast<double>(value);
    add(name, help, MetricType::Counter, std::move(metric), more);
  }

  std::vector<MetricFamily> families;
  bool unlabelled = false;  // what follows is not about the model

 private:
  // Calls with the same name come one after another.
  void add(const char* name, const char* help, MetricType type, prometheus::ClientMetric metric,
           const prometheus::Labels& more) {
    const prometheus::Labels none;
    for (const auto* labels : {unlabelled ? &none : &labels_, &more})
      for (const auto& [key, value] : *labels) metric.label.push_back({key, value});
    if (families.empty() || families.back().name != name)
      families.push_back({name, help, type, {}});
    families.back().metric.push_back(std::move(metric));
  }

  const prometheus::Labels& labels_;
};

void add_engine(Snapshot& out, const engine::EngineStats& engine) {
  const auto total = static_cast<double>(std::max<int64_t>(1, engine.total_blocks));
  out.gauge("vllm:num_requests_running", "Requests in the running batch.",
            static_cast<double>(engine.running));
  out.gauge("vllm:num_requests_waiting", "Requests waiting to be scheduled.",
            static_cast<double>(engine.waiting));
  out.gauge("vllm:kv_cache_usage_perc", "Share of the KV blocks in use; 1 is all.",
            static_cast<double>(engine.used_blocks) / total);
  out.counter("vllm:num_preemptions_total", "Preempted requests.", engine.preemptions);
  out.counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
              engine.prefix_queries);
  out.counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
              engine.prefix_hits);
  out.counter("quire:prefix_cache_evictions_total",
              "Cached blocks whose contents were given up for others.", engine.prefix_evictions);
  out.counter("vllm:prompt_tokens_total", "Prompt tokens processed.", engine.prompt_tokens);
  out.counter("vllm:generation_tokens_total", "Tokens produced.", engine.generation_tokens);
  out.histogram("vllm:iteration_tokens_total", "Tokens of a step, of prompts and produced ones.",
                engine.step_tokens);
  out.gauge("vllm:cache_config_info", "Always 1; the labels say what the KV cache is.", 1,
            {{"block_size", std::to_string(engine.block_size)},
             {"cache_dtype", engine.kv_cache_dtype},
             {"enable_prefix_caching", engine.prefix_caching ? "True" : "False"},
             {"num_gpu_blocks", std::to_string(engine.total_blocks)}});
  out.gauge("quire:device_info", "Always 1; the labels say what computes.", 1,
            {{"device", engine.device}, {"description", engine.device_description}});
  out.gauge("quire:engine_healthy", "1 unless the engine has failed.", engine.healthy ? 1 : 0);
  out.gauge("quire:kv_blocks", "KV blocks in the pool.", static_cast<double>(engine.total_blocks));
  out.gauge("quire:kv_blocks_used", "KV blocks that requests hold.",
            static_cast<double>(engine.used_blocks));
  out.gauge("quire:kv_blocks_cached", "KV blocks kept for reuse that no request holds.",
            static_cast<double>(engine.cached_blocks));
  out.gauge("quire:kv_blocks_touched", "KV blocks up to the last one that was ever used.",
            static_cast<double>(engine.touched_blocks));
  if (engine.state_slots > 0) {
    out.gauge("quire:state_slots", "Slots for the recurrent state of running requests.",
              static_cast<double>(engine.state_slots));
    out.gauge("quire:state_slots_used", "State slots that requests hold.",
              static_cast<double>(engine.used_state_slots));
    out.gauge("quire:state_checkpoints", "Slots for saved states, from which prefixes go on.",
              static_cast<double>(engine.state_checkpoints));
    out.gauge("quire:state_checkpoints_used", "Saved states.",
              static_cast<double>(engine.used_state_checkpoints));
    out.counter("quire:state_checkpoint_saves_total", "States saved.", engine.state_saves);
    out.counter("quire:state_checkpoint_hits_total", "Requests that went on from a saved state.",
                engine.state_restores);
  }
  out.counter("quire:engine_steps_total", "Steps of the engine.", engine.steps);
  for (const auto& [kernel, runs] : engine.kernel_runs)
    out.counter("quire:kernel_runs_total", "Runs of each kernel.", runs, {{"kernel", kernel}});
}

// vLLM's figure: the labels say it all, the value is the time.
void add_adapters(Snapshot& out, const std::vector<engine::AdapterLoads::Load>& loads,
                  const std::vector<std::string>& names, int64_t most) {
  std::string running, waiting;
  const auto add = [](std::string& list, const std::string& name) {
    list += (list.empty() ? "" : ",") + name;
  };
  for (size_t i = 0; i < loads.size(); ++i) {
    if (loads[i].running > 0) add(running, names.at(i));
    if (loads[i].waiting > 0) add(waiting, names.at(i));
  }
  const auto limit = most > 0 ? most : static_cast<int64_t>(names.size());
  out.gauge("vllm:lora_requests_info", "The time; the labels say which adapters have requests.",
            static_cast<double>(std::time(nullptr)),
            {{"max_lora", std::to_string(limit)},
             {"running_lora_adapters", running},
             {"waiting_lora_adapters", waiting}});
}

// With the names and helps of Prometheus's clients, and without the model's labels.
void add_process(Snapshot& out, const ProcessState& process) {
  out.unlabelled = true;
  out.counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.",
              process.cpu_seconds);
  out.gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", process.virtual_bytes);
  out.gauge("process_resident_memory_bytes", "Resident memory size in bytes.",
            process.resident_bytes);
  out.gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.",
            process.start_seconds);
  out.gauge("process_open_fds", "Number of open file descriptors.", process.open_files);
  out.gauge("process_max_fds", "Maximum number of open file descriptors.", process.max_files);
  out.unlabelled = false;
}

}  // namespace

Metrics::Metrics(const ServerOptions& options, int64_t max_model_len)
    : labels_{{"engine", "0"}, {"model_name", options.served_model_names.front()}},
      max_adapters_(options.max_adapters),
      time_to_first_token_(histogram("vllm:time_to_first_token_seconds",
                                     "From a request's arrival to its first token.",
                                     kFirstTokenBuckets)),
      inter_token_(histogram("vllm:inter_token_latency_seconds",
                             "From one token of a request to the next.", kTokenTimeBuckets)),
      time_per_output_token_(histogram("vllm:request_time_per_output_token_seconds",
                                       "Mean time per token after the first, per request.",
                                       kTokenTimeBuckets)),
      e2e_(histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token.",
                     kRequestTimeBuckets)),
      queue_time_(histogram("vllm:request_queue_time_seconds", "From arrival to the first step.",
                            kRequestTimeBuckets)),
      prefill_time_(histogram("vllm:request_prefill_time_seconds",
                              "From the first step to the first token.", kRequestTimeBuckets)),
      decode_time_(histogram("vllm:request_decode_time_seconds",
                             "From the first token to the last.", kRequestTimeBuckets)),
      inference_time_(histogram("vllm:request_inference_time_seconds",
                                "From the first step to the last token.", kRequestTimeBuckets)),
      prompt_tokens_(histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.",
                               token_buckets(max_model_len))),
      generation_tokens_(histogram("vllm:request_generation_tokens", "Tokens of an answer.",
                                   token_buckets(max_model_len))),
      max_generation_tokens_(
          histogram("vllm:request_max_num_generation_tokens",
                    "The longest answer of a request, or the one that `n` answers share.",
                    token_buckets(max_model_len))),
      params_n_(histogram("vllm:request_params_n", "The parameter n.", {1, 2, 5, 10, 20})),
      params_max_tokens_(histogram("vllm:request_params_max_tokens", "The parameter max_tokens.",
                                   token_buckets(max_model_len))),
      request_success_(prometheus::BuildCounter()
                           .Name("vllm:request_success_total")
                           .Help("Finished requests.")
                           .Labels(labels_)
                           .Register(registry_)),
      http_requests_(prometheus::BuildCounter()
                         .Name("http_requests_total")
                         .Help("Answered HTTP requests.")
                         .Register(registry_)),
      prompt_tokens_cached_(prometheus::BuildCounter()
                                .Name("vllm:prompt_tokens_cached_total")
                                .Help("Tokens of prompts that were read from the prefix cache.")
                                .Labels(labels_)
                                .Register(registry_)
                                .Add({})) {
  for (const ServedAdapter& adapter : options.adapters) adapters_.push_back(adapter.name);
  using R = engine::FinishReason;
  // A dashboard wants to see zeros, not nothing.
  for (const R reason : {R::kStop, R::kLength, R::kAbort, R::kError})
    request_success_.Add({{"finished_reason", openai::finish_reason_name(reason)}});
}

prometheus::Histogram& Metrics::histogram(const char* name, const char* help,
                                          const std::vector<double>& buckets) {
  auto& family =
      prometheus::BuildHistogram().Name(name).Help(help).Labels(labels_).Register(registry_);
  return family.Add({}, buckets);
}

void Metrics::request_submitted(const std::vector<engine::Request>& requests, int64_t n) {
  params_n_.Observe(static_cast<double>(n));
  for (const auto& request : requests)
    params_max_tokens_.Observe(static_cast<double>(request.sampling.max_tokens));
}

void Metrics::answers_finished(int64_t longest) {
  max_generation_tokens_.Observe(static_cast<double>(longest));
}

void Metrics::first_token(double seconds) { time_to_first_token_.Observe(seconds); }
void Metrics::next_token(double seconds) { inter_token_.Observe(seconds); }

void Metrics::request_finished(const engine::RequestStats& stats, engine::FinishReason reason,
                               int64_t output_tokens, double seconds_since_arrival) {
  request_success_.Add({{"finished_reason", openai::finish_reason_name(reason)}}).Increment();
  e2e_.Observe(seconds_since_arrival);
  prompt_tokens_.Observe(static_cast<double>(stats.prompt_tokens));
  generation_tokens_.Observe(static_cast<double>(output_tokens));
  prompt_tokens_cached_.Increment(static_cast<double>(stats.cached_tokens));
  // Times that were never reached are the epoch: the request was aborted before.
  const auto observe = [](prometheus::Histogram& histogram, TimePoint from, TimePoint to) {
    if (from != TimePoint() && to != TimePoint()) histogram.Observe(seconds_between(from, to));
  };
  observe(queue_time_, stats.arrived, stats.scheduled);
  observe(prefill_time_, stats.scheduled, stats.first_token);
  observe(decode_time_, stats.first_token, stats.finished);
  observe(inference_time_, stats.scheduled, stats.finished);
  if (output_tokens > 1 && stats.first_token != TimePoint() && stats.finished != TimePoint()) {
    const double decode = seconds_between(stats.first_token, stats.finished);
    time_per_output_token_.Observe(decode / static_cast<double>(output_tokens - 1));
  }
}

void Metrics::http_request(const std::string& method, const std::string& route, int status) {
  http_requests_.Add({{"handler", route}, {"method", method}, {"status", std::to_string(status)}})
      .Increment();
}

std::string Metrics::render(const engine::EngineStats& engine, const HttpState& http) const {
  Snapshot snapshot(labels_);
  add_engine(snapshot, engine);
  if (!adapters_.empty()) add_adapters(snapshot, engine.adapters, adapters_, max_adapters_);
  snapshot.gauge("quire:http_connections", "Open connections.",
                 static_cast<double>(http.connections));
  snapshot.gauge("quire:http_waiting_jobs", "Requests that wait for a thread to read their text.",
                 static_cast<double>(http.waiting_jobs));
  for (size_t i = 0; i < http::kHeldKinds; ++i) {
    snapshot.gauge("quire:http_buffered_bytes", "Bytes held for requests, by what they are.",
                   static_cast<double>(http.held_bytes[i]),
                   {{"kind", http::held_name(static_cast<http::Held>(i))}});
  }
  snapshot.counter("quire:log_lines_dropped_total", "Lines of the log that nobody read in time.",
                   dropped_log_lines());
  add_process(snapshot, read_process_state());
  auto families = registry_.Collect();
  families.insert(families.end(), snapshot.families.begin(), snapshot.families.end());
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace quire::server
