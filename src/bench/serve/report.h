#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "bench/serve/client.h"

namespace quire::bench {

// What the figures of a load test depend on, and which of them to print.
struct ServeReportOptions {
  int64_t max_concurrency = 0;                                 // 0: no limit, and no line about it
  double request_rate = 0;                                     // 0: all at once
  std::vector<std::string> metrics = {"ttft", "tpot", "itl"};  // and e2el
  std::vector<double> percentiles = {99};
};

// Prints vLLM's "Serving Benchmark Result" block, and returns its figures under vLLM's JSON keys.
// Times are of successful requests only. TPOT is a request's time after its first token, for each
// later one; requests of one token have none. Peaks count whole seconds from the first request.
json::object report_serving(const std::vector<LoadRecord>& records, double seconds,
                            const ServeReportOptions& options);

// Every request's lengths, times, error and text, under vLLM's JSON keys.
void add_details(const std::vector<LoadRecord>& records, json::object& figures);

}  // namespace quire::bench
