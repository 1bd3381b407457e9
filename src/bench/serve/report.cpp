#include "bench/serve/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "bench/stats.h"

namespace quire::bench {
namespace {

struct Metric {
  const char* key;
  const char* name;
  const char* title;
};
constexpr Metric kMetrics[] = {{"ttft", "TTFT", "Time to First Token"},
                               {"tpot", "TPOT", "Time per Output Token (excl. 1st token)"},
                               {"itl", "ITL", "Inter-token Latency"},
                               {"e2el", "E2EL", "End-to-end Latency"}};

struct Totals {
  int64_t completed = 0, failed = 0, input = 0, output = 0;
  double peak_output = 0;     // most tokens in one second
  int64_t peak_requests = 0;  // most requests that ran in one second
};

Totals add_up(const std::vector<LoadRecord>& records) {
  Totals totals;
  double first = 1e300, last = 0;
  for (const LoadRecord& r : records) {
    ++(r.ok ? totals.completed : totals.failed);
    if (!r.ok) continue;
    totals.input += r.prompt_len;
    totals.output += r.output_len;
    first = std::min(first, r.start);
    last = std::max(last, r.start + r.latency);
  }
  if (totals.completed == 0) return totals;
  const auto seconds = static_cast<size_t>(last - first) + 2;
  std::vector<double> tokens(seconds);
  std::vector<int64_t> running(seconds);
  for (const LoadRecord& r : records) {
    if (!r.ok) continue;
    double time = r.start - first + r.ttft;
    // Chunks may bring several tokens each: spread what `usage` counted over them.
    const double per_chunk =
        static_cast<double>(r.output_len) / static_cast<double>(r.itl.size() + 1);
    tokens[static_cast<size_t>(time)] += per_chunk;
    for (const double gap : r.itl) {
      time += gap;
      tokens[std::min(static_cast<size_t>(time), seconds - 1)] += per_chunk;
    }
    const auto end = static_cast<size_t>(r.start - first + r.latency);
    for (auto s = static_cast<size_t>(r.start - first); s <= end; ++s) ++running[s];
  }
  totals.peak_output = *std::max_element(tokens.begin(), tokens.end());
  totals.peak_requests = *std::max_element(running.begin(), running.end());
  return totals;
}

// Milliseconds.
std::vector<double> values_of(const std::string& metric, const std::vector<LoadRecord>& records) {
  std::vector<double> values;
  for (const LoadRecord& r : records) {
    if (!r.ok) continue;
    if (metric == "ttft") values.push_back(1e3 * r.ttft);
    if (metric == "e2el") values.push_back(1e3 * r.latency);
    if (metric == "tpot" && r.output_len > 1)
      values.push_back(1e3 * (r.latency - r.ttft) / static_cast<double>(r.output_len - 1));
    if (metric == "itl")
      for (const double gap : r.itl) values.push_back(1e3 * gap);
  }
  return values;
}

void line(const std::string& name, double value) {
  std::printf("%-40s %-10.2f\n", name.c_str(), value);
}
void line(const std::string& name, int64_t value) {
  std::printf("%-40s %-10lld\n", name.c_str(), static_cast<long long>(value));
}

void title(const std::string& text, char fill) {
  const size_t left = (50 - std::min<size_t>(50, text.size())) / 2;
  const size_t right = 50 - std::min<size_t>(50, text.size()) - left;
  std::printf("%s%s%s\n", std::string(left, fill).c_str(), text.c_str(),
              std::string(right, fill).c_str());
}

std::string percent_name(double percent) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", percent);
  return text;
}

void report_metric(const Metric& metric, const std::vector<LoadRecord>& records,
                   const ServeReportOptions& options, json::object& figures) {
  const std::vector<double> values = values_of(metric.key, records);
  const auto tell = [&](const std::string& statistic, const std::string& key, double value,
                        bool print = true) {
    if (print) line(statistic + " " + metric.name + " (ms):", value);
    figures[key + "_" + metric.key + "_ms"] = value;
  };
  title(metric.title, '-');
  tell("Mean", "mean", mean(values));
  tell("Median", "median", percentile(values, 50));
  tell("Std", "std", standard_deviation(values), false);
  for (const double percent : options.percentiles) {
    const std::string name = percent_name(percent);
    tell("P" + name, "p" + name, percentile(values, percent));
  }
}

}  // namespace

json::object report_serving(const std::vector<LoadRecord>& records, double seconds,
                            const ServeReportOptions& options) {
  const Totals totals = add_up(records);
  const double requests_rate = static_cast<double>(totals.completed) / seconds;
  const double output_rate = static_cast<double>(totals.output) / seconds;
  const double total_rate = static_cast<double>(totals.input + totals.output) / seconds;
  title(" Serving Benchmark Result ", '=');
  line("Successful requests:", totals.completed);
  line("Failed requests:", totals.failed);
  if (options.max_concurrency > 0) line("Maximum request concurrency:", options.max_concurrency);
  if (options.request_rate > 0) line("Request rate configured (RPS):", options.request_rate);
  line("Benchmark duration (s):", seconds);
  line("Total input tokens:", totals.input);
  line("Total generated tokens:", totals.output);
  line("Request throughput (req/s):", requests_rate);
  line("Output token throughput (tok/s):", output_rate);
  line("Peak output token throughput (tok/s):", totals.peak_output);
  line("Peak concurrent requests:", static_cast<double>(totals.peak_requests));
  line("Total token throughput (tok/s):", total_rate);
  json::object figures{{"duration", seconds},
                       {"completed", totals.completed},
                       {"failed", totals.failed},
                       {"total_input_tokens", totals.input},
                       {"total_output_tokens", totals.output},
                       {"request_throughput", requests_rate},
                       {"output_throughput", output_rate},
                       {"total_token_throughput", total_rate},
                       {"max_output_tokens_per_s", totals.peak_output},
                       {"max_concurrent_requests", totals.peak_requests}};
  for (const Metric& metric : kMetrics)
    if (std::find(options.metrics.begin(), options.metrics.end(), metric.key) !=
        options.metrics.end())
      report_metric(metric, records, options, figures);
  title("", '=');
  std::fflush(stdout);
  return figures;
}

void add_details(const std::vector<LoadRecord>& records, json::object& figures) {
  json::array input_lens, output_lens, ttfts, itls, latencies, starts, errors, texts;
  for (const LoadRecord& r : records) {
    input_lens.emplace_back(r.prompt_len);
    output_lens.emplace_back(r.output_len);
    ttfts.emplace_back(r.ttft);
    itls.emplace_back(json::value_from(r.itl));
    latencies.emplace_back(r.latency);
    starts.emplace_back(r.start);
    errors.emplace_back(r.error);
    texts.emplace_back(r.answer.reasoning + r.answer.content);
  }
  figures["input_lens"] = std::move(input_lens);
  figures["output_lens"] = std::move(output_lens);
  figures["ttfts"] = std::move(ttfts);
  figures["itls"] = std::move(itls);
  figures["latencies"] = std::move(latencies);
  figures["start_times"] = std::move(starts);
  figures["errors"] = std::move(errors);
  figures["generated_texts"] = std::move(texts);
}

}  // namespace quire::bench
