#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <limits>

#include "base/clock.h"
#include "base/error.h"
#include "cli/bench.h"
#include "cli/bench_client.h"
#include "cli/bench_random.h"
#include "cli/bench_serve_report.h"

namespace quire::cli {
namespace {

// vLLM's names and defaults.
struct ServeBenchFlags {
  std::string base_url, host = "127.0.0.1";
  int port = 8000;
  std::string endpoint = "/v1/completions", model, tokenizer, api_key;
  DatasetOptions dataset;
  bool token_ids = false, ignore_eos = false;
  double temperature = 0;
  double request_rate = std::numeric_limits<double>::infinity(), burstiness = 1;
  int64_t max_concurrency = 0, num_warmups = 0;
  std::vector<std::string> percentile_metrics = {"ttft", "tpot", "itl"};
  std::vector<double> metric_percentiles = {99};
  std::string extra_body;
  bool save_result = false, save_detailed = false;
  std::string result_dir, result_filename, label;
};

bool is_chat(const ServeBenchFlags& flags) { return flags.endpoint.ends_with("/chat/completions"); }

std::shared_ptr<const text::Tokenizer> load_tokenizer(const ServeBenchFlags& flags) {
  std::error_code ignored;
  const std::string& folder = flags.tokenizer.empty() ? flags.model : flags.tokenizer;
  if (!folder.empty() && std::filesystem::is_directory(folder, ignored))
    return text::Tokenizer::load(folder);
  throw LoadError(flags.tokenizer.empty()
                      ? "give --tokenizer DIR, the model's folder: prompts are cut to exact lengths"
                      : "--tokenizer: there is no folder " + flags.tokenizer);
}

std::string body_of(const ServeBenchFlags& flags, const std::string& model,
                    const BenchPrompt& prompt) {
  json::object body{{"model", model},
                    {"max_tokens", prompt.output_len},
                    {"temperature", flags.temperature},
                    {"stream", true},
                    {"stream_options", {{"include_usage", true}}}};
  if (flags.ignore_eos) body["ignore_eos"] = true;
  if (is_chat(flags)) {
    body["messages"] = json::array{json::object{{"role", "user"}, {"content", prompt.text}}};
  } else if (flags.token_ids) {
    body["prompt"] = json::value_from(prompt.ids);
  } else {
    body["prompt"] = prompt.text;
  }
  if (!flags.extra_body.empty()) {
    const auto more = parse_json(flags.extra_body);
    if (!more || !more->is_object()) throw LoadError("--extra-body: it is no JSON object");
    for (const auto& field : more->get_object()) body[field.key()] = field.value();
  }
  return dump_json(body);
}

// Arrival times of a gamma process, stretched to end where the rate says, as vLLM does.
std::vector<double> arrivals(const ServeBenchFlags& flags, size_t count) {
  std::vector<double> times(count, 0.0);
  if (std::isinf(flags.request_rate)) return times;
  BenchRandom random(flags.dataset.seed, 0x61727269);
  double time = 0;
  for (double& t : times) {
    time += random.gamma(flags.burstiness);
    t = time;
  }
  const double stretch = static_cast<double>(count) / flags.request_rate / time;
  for (double& t : times) t *= stretch;
  return times;
}

std::vector<LoadRequest> make_requests(const ServeBenchFlags& flags, const std::string& model,
                                       const std::vector<BenchPrompt>& prompts) {
  const std::vector<double> times = arrivals(flags, prompts.size());
  std::vector<LoadRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i)
    requests.push_back({.body = body_of(flags, model, prompts[i]),
                        .arrival = times[i],
                        .prompt_len = static_cast<int64_t>(prompts[i].ids.size())});
  return requests;
}

// Prompts of their own, so that the measured ones find no cache of theirs.
void warm_up(const ServeBenchFlags& flags, const LoadOptions& load, const std::string& model,
             const text::Tokenizer& tokenizer) {
  if (flags.num_warmups == 0) return;
  DatasetOptions options = flags.dataset;
  if (options.name == "prefix_repetition") {
    options.random_input_len = options.prefix_len + options.suffix_len;
    options.random_output_len = options.prefix_output_len;
  }
  options.name = "random";
  options.num_prompts = flags.num_warmups;
  options.seed += 1000003;
  ServeBenchFlags at_once = flags;
  at_once.request_rate = std::numeric_limits<double>::infinity();
  for (const LoadRecord& record :
       run_load(load, make_requests(at_once, model, make_dataset(tokenizer, options))))
    if (!record.ok) throw LoadError("the warm-up failed: " + record.error);
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

void save(const ServeBenchFlags& flags, const std::string& model,
          const std::vector<LoadRecord>& records, const json::object& figures) {
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  std::strftime(date, sizeof date, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
  const bool at_once = std::isinf(flags.request_rate);
  json::object result{
      {"date", date},
      {"endpoint_type", is_chat(flags) ? "openai-chat" : "openai"},
      {"backend", is_chat(flags) ? "openai-chat" : "openai"},
      {"label", flags.label.empty() ? json::value() : json::value(flags.label)},
      {"model_id", model},
      {"tokenizer_id", flags.tokenizer.empty() ? flags.model : flags.tokenizer},
      {"num_prompts", records.size()},
      {"request_rate", at_once ? json::value("inf") : json::value(flags.request_rate)},
      {"burstiness", flags.burstiness},
      {"max_concurrency",
       flags.max_concurrency > 0 ? json::value(flags.max_concurrency) : json::value()}};
  for (const auto& figure : figures) result[figure.key()] = figure.value();
  if (flags.save_detailed) add_details(records, result);
  std::string name = flags.result_filename;
  if (name.empty()) {
    char rate[32];
    std::snprintf(rate, sizeof rate, "%.10g", flags.request_rate);
    name =
        std::string(is_chat(flags) ? "openai-chat" : "openai") + "-" + rate + "qps" +
        (flags.max_concurrency > 0 ? "-concurrency" + std::to_string(flags.max_concurrency) : "") +
        "-" + std::filesystem::path(model).filename().string() + "-" + date + ".json";
  }
  if (!flags.result_dir.empty()) {
    std::filesystem::create_directories(flags.result_dir);
    name = (std::filesystem::path(flags.result_dir) / name).string();
  }
  write_text(name, dump_json(result), "--result-filename");
}

int bench_serve(const ServeBenchFlags& flags) {
  for (const std::string& metric : flags.percentile_metrics)
    if (metric != "ttft" && metric != "tpot" && metric != "itl" && metric != "e2el")
      throw LoadError("--percentile-metrics: choose of ttft,tpot,itl,e2el, not " + metric);
  if (flags.token_ids && is_chat(flags))
    throw LoadError("--prompt-token-ids: chat messages are text; use --endpoint /v1/completions");
  const std::string url = flags.base_url.empty()
                              ? "http://" + flags.host + ":" + std::to_string(flags.port)
                              : flags.base_url;
  LoadOptions load{.server = parse_base_url(url),
                   .path = flags.endpoint,
                   .authorization = flags.api_key.empty() ? "" : "Bearer " + flags.api_key,
                   .max_concurrency = flags.max_concurrency};
  const auto tokenizer = load_tokenizer(flags);
  const std::string model = flags.model.empty() ? served_model(load) : flags.model;
  const auto requests = make_requests(flags, model, make_dataset(*tokenizer, flags.dataset));
  warm_up(flags, load, model, *tokenizer);
  const TimePoint start = Clock::now();
  const std::vector<LoadRecord> records = run_load(load, requests);
  const double seconds = seconds_since(start);
  const json::object figures =
      report_serving(records, seconds,
                     {.max_concurrency = flags.max_concurrency,
                      .request_rate = std::isinf(flags.request_rate) ? 0 : flags.request_rate,
                      .metrics = flags.percentile_metrics,
                      .percentiles = flags.metric_percentiles});
  if (flags.save_result) save(flags, model, records, figures);
  for (const LoadRecord& record : records) {
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
      .add_option("--request-rate", flags.request_rate,
                  "Requests a second, at random times; inf: all at once")
      ->check(positive)
      ->capture_default_str();
  command
      .add_option(
          "--burstiness", flags.burstiness,
          "Shape of the gamma distribution of gaps: 1 is a Poisson process, less is burstier")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--max-concurrency", flags.max_concurrency, "Most requests at once")
      ->check(CLI::Range(1, 1 << 16));
  command.add_option("--num-warmups", flags.num_warmups, "Requests before those that count")
      ->check(CLI::Range(0, 1 << 16))
      ->capture_default_str();
  command.add_flag("--ignore-eos", flags.ignore_eos, "Ask for answers of full length");
  command.add_option("--temperature", flags.temperature, "Of every request")->capture_default_str();
  command.add_option("--extra-body", flags.extra_body, "JSON object added to every request");
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
  command->add_option("--endpoint", flags->endpoint, "/v1/completions or /v1/chat/completions")
      ->check(CLI::IsMember({"/v1/completions", "/v1/chat/completions"}))
      ->capture_default_str();
  command->add_option("--model", flags->model, "Name to ask for; default: the server's first");
  command->add_option("--tokenizer", flags->tokenizer,
                      "The model's folder, for prompts of exact lengths; default: --model");
  command->add_flag("--prompt-token-ids", flags->token_ids,
                    "Send prompts as token ids (completions only)");
  command->add_option("--api-key", flags->api_key, "Sent as a bearer token")
      ->envname("OPENAI_API_KEY");
  command->add_option("--seed", flags->dataset.seed, "Of prompts and arrival times")
      ->capture_default_str();
  add_dataset_flags(*command, flags->dataset);
  add_load_flags(*command, *flags);
  add_result_flags(*command, *flags);
  command->callback([flags, &status] { status = bench_serve(*flags); });
}

}  // namespace quire::cli
