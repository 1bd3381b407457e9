#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "base/clock.h"
#include "base/error.h"
#include "bench/serve/report.h"
#include "bench/serve/workload.h"
#include "cli/bench.h"
#include "cli/model_name.h"

namespace quire::cli {
namespace {

// vLLM's names and defaults.
struct ServeBenchFlags {
  std::string base_url, host = "127.0.0.1";
  int port = 8000;
  std::string model, tokenizer, api_key;
  bench::Workload workload;
  int64_t max_concurrency = 0;
  std::vector<std::string> percentile_metrics = {"ttft", "tpot", "itl"};
  std::vector<double> metric_percentiles = {99};
  bool save_result = false, save_detailed = false;
  std::string result_dir, result_filename, label;
};

std::shared_ptr<const text::Tokenizer> load_tokenizer(const ServeBenchFlags& flags) {
  std::error_code ignored;
  const std::string& given = flags.tokenizer.empty() ? flags.model : flags.tokenizer;
  const std::string folder =
      given.empty() ? given : find_model(given, ModelParts::kTokenizer).folder;
  if (!folder.empty() && std::filesystem::is_directory(folder, ignored))
    return text::Tokenizer::load(folder);
  throw LoadError(
      flags.tokenizer.empty()
          ? "give --tokenizer, the model's folder or its name on a hub: prompts are cut to "
            "exact lengths"
          : "--tokenizer: there is no folder " + flags.tokenizer);
}

void save(const ServeBenchFlags& flags, const std::vector<bench::LoadRecord>& records,
          const json::object& figures) {
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  std::strftime(date, sizeof date, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
  const bool at_once = std::isinf(flags.workload.request_rate);
  json::object result{
      {"date", date},
      {"endpoint_type", is_chat(flags.workload) ? "openai-chat" : "openai"},
      {"backend", is_chat(flags.workload) ? "openai-chat" : "openai"},
      {"label", flags.label.empty() ? json::value() : json::value(flags.label)},
      {"model_id", flags.workload.model},
      {"tokenizer_id", flags.tokenizer.empty() ? flags.model : flags.tokenizer},
      {"num_prompts", records.size()},
      {"request_rate", at_once ? json::value("inf") : json::value(flags.workload.request_rate)},
      {"burstiness", flags.workload.burstiness},
      {"max_concurrency",
       flags.max_concurrency > 0 ? json::value(flags.max_concurrency) : json::value()}};
  for (const auto& figure : figures) result[figure.key()] = figure.value();
  if (flags.save_detailed) add_details(records, result);
  std::string name = flags.result_filename;
  if (name.empty()) {
    char rate[32];
    std::snprintf(rate, sizeof rate, "%.10g", flags.workload.request_rate);
    name =
        std::string(is_chat(flags.workload) ? "openai-chat" : "openai") + "-" + rate + "qps" +
        (flags.max_concurrency > 0 ? "-concurrency" + std::to_string(flags.max_concurrency) : "") +
        "-" + std::filesystem::path(flags.workload.model).filename().string() + "-" + date +
        ".json";
  }
  if (!flags.result_dir.empty()) {
    std::filesystem::create_directories(flags.result_dir);
    name = (std::filesystem::path(flags.result_dir) / name).string();
  }
  write_text(name, dump_json(result), "--result-filename");
}

int bench_serve(ServeBenchFlags flags) {
  for (const std::string& metric : flags.percentile_metrics)
    if (metric != "ttft" && metric != "tpot" && metric != "itl" && metric != "e2el")
      throw LoadError("--percentile-metrics: choose of ttft,tpot,itl,e2el, not " + metric);
  if (flags.workload.token_ids && is_chat(flags.workload))
    throw LoadError("--prompt-token-ids: chat messages are text; use --endpoint /v1/completions");
  const std::string url = flags.base_url.empty()
                              ? "http://" + flags.host + ":" + std::to_string(flags.port)
                              : flags.base_url;
  bench::LoadOptions load{.server = bench::parse_base_url(url),
                          .path = flags.workload.endpoint,
                          .authorization = flags.api_key.empty() ? "" : "Bearer " + flags.api_key,
                          .max_concurrency = flags.max_concurrency};
  const auto tokenizer = load_tokenizer(flags);
  flags.workload.model = flags.model.empty() ? served_model(load) : flags.model;
  const auto requests =
      make_requests(flags.workload, make_dataset(*tokenizer, flags.workload.dataset));
  warm_up(flags.workload, load, *tokenizer);
  const TimePoint start = Clock::now();
  const std::vector<bench::LoadRecord> records = run_load(load, requests);
  const double seconds = seconds_since(start);
  const json::object figures = report_serving(
      records, seconds,
      {.max_concurrency = flags.max_concurrency,
       .request_rate = std::isinf(flags.workload.request_rate) ? 0 : flags.workload.request_rate,
       .metrics = flags.percentile_metrics,
       .percentiles = flags.metric_percentiles});
  if (flags.save_result) save(flags, records, figures);
  for (const bench::LoadRecord& record : records) {
    if (record.ok) continue;
    std::fprintf(stderr, "quire: a request failed: %s\n", record.error.c_str());
    return 1;
  }
  return 0;
}

// Infinity counts.
std::string positive(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return *end == '\0' && value > 0 ? "" : text + " is not a positive number";
}

void add_load_flags(CLI::App& command, ServeBenchFlags& flags) {
  command
      .add_option("--request-rate", flags.workload.request_rate,
                  "Requests a second, at random times; inf: all at once")
      ->check(positive)
      ->capture_default_str();
  command
      .add_option(
          "--burstiness", flags.workload.burstiness,
          "Shape of the gamma distribution of gaps: 1 is a Poisson process, less is burstier")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--max-concurrency", flags.max_concurrency, "Most requests at once")
      ->check(CLI::Range(1, 1 << 16));
  command
      .add_option("--num-warmups", flags.workload.num_warmups, "Requests before those that count")
      ->check(CLI::Range(0, 1 << 16))
      ->capture_default_str();
  command.add_flag("--ignore-eos", flags.workload.ignore_eos, "Ask for answers of full length");
  command.add_option("--temperature", flags.workload.temperature, "Of every request")
      ->capture_default_str();
  command.add_option("--extra-body", flags.workload.extra_body,
                     "JSON object added to every request");
}

void add_result_flags(CLI::App& command, ServeBenchFlags& flags) {
  command.add_option("--percentile-metrics", flags.percentile_metrics, "Of ttft,tpot,itl,e2el")
      ->delimiter(',')
      ->capture_default_str();
  command.add_option("--metric-percentiles", flags.metric_percentiles, "Such as 50,90,99")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command.add_flag("--save-result", flags.save_result, "Write the figures to a JSON file");
  command.add_flag("--save-detailed", flags.save_detailed, "With every request's times and text");
  command.add_option("--result-dir", flags.result_dir, "Where to");
  command.add_option("--result-filename", flags.result_filename, "Under which name");
  command.add_option("--label", flags.label, "Of the run, in the JSON file");
}

}  // namespace

void add_bench_serve(CLI::App& bench, int& status) {
  auto flags = std::make_shared<ServeBenchFlags>();
  CLI::App* command = bench.add_subcommand(
      "serve",
      "Load on a running OpenAI-compatible server (this one or another), with vLLM's figures");
  command->add_option("--base-url", flags->base_url, "http://HOST:PORT instead of the next two");
  command->add_option("--host", flags->host)->capture_default_str();
  command->add_option("--port", flags->port)->check(CLI::Range(1, 65535))->capture_default_str();
  command
      ->add_option("--endpoint", flags->workload.endpoint,
                   "/v1/completions or /v1/chat/completions")
      ->check(CLI::IsMember({"/v1/completions", "/v1/chat/completions"}))
      ->capture_default_str();
  command->add_option("--model", flags->model, "Name to ask for; default: the server's first");
  command->add_option("--tokenizer", flags->tokenizer,
                      "The model's folder, or its name on a hub, for prompts of exact lengths; "
                      "default: --model");
  command->add_flag("--prompt-token-ids", flags->workload.token_ids,
                    "Send prompts as token ids (completions only)");
  command->add_option("--api-key", flags->api_key, "Sent as a bearer token")
      ->envname("OPENAI_API_KEY");
  command->add_option("--seed", flags->workload.dataset.seed, "Of prompts and arrival times")
      ->capture_default_str();
  add_dataset_flags(*command, flags->workload.dataset);
  add_load_flags(*command, *flags);
  add_result_flags(*command, *flags);
  command->callback([flags, &status] { status = bench_serve(*flags); });
}

}  // namespace quire::cli
