#pragma once
#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/engine_client.h"
#include "server/http/ledger.h"
#include "server/options.h"

namespace quire::server {

// What /metrics shows: vLLM's names, so that its dashboards work, and some of our own ("quire:").
// Thread-safe.
class Metrics {
 public:
  Metrics(const ServerOptions& options, int64_t max_model_len);

  // All answers to a request: the longest one's tokens.
  void answers_finished(int64_t longest);
  void request_submitted(const std::vector<engine::Request>& requests, int64_t n);
  void first_token(double seconds_since_arrival);
  void next_token(double seconds_since_last);
  void request_finished(const engine::RequestStats& stats, engine::FinishReason reason,
                        int64_t output_tokens, double seconds_since_arrival);
  // `route`: the path of a known endpoint, so that clients cannot invent label values.
  void http_request(const std::string& method, const std::string& route, int status);

  struct HttpState {
    size_t connections = 0, waiting_jobs = 0;
    std::array<size_t, http::kHeldKinds> held_bytes{};
  };
  // Prometheus's text format.
  std::string render(const engine::EngineStats& engine, const HttpState& http) const;

 private:
  prometheus::Histogram& histogram(const char* name, const char* help,
                                   const std::vector<double>& buckets);

  prometheus::Labels labels_;
  std::vector<std::string> adapters_;  // their names, by index
  int64_t max_adapters_;
  mutable prometheus::Registry registry_;
  prometheus::Histogram &time_to_first_token_, &inter_token_, &time_per_output_token_, &e2e_,
      &queue_time_, &prefill_time_, &decode_time_, &inference_time_, &prompt_tokens_,
      &generation_tokens_, &max_generation_tokens_, &params_n_, &params_max_tokens_;
  prometheus::Family<prometheus::Counter>&request_success_, &http_requests_;
  prometheus::Counter& prompt_tokens_cached_;
};

}  // namespace quire::server
