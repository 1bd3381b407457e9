// quire replay: a recorded session against a running server.
#include <random>
#include <sstream>

#include "base/clock.h"
#include "base/error.h"
#include "bench/serve/replay_run.h"
#include "cli/bench.h"
#include "cli/commands.h"
#include "formats/data_file.h"

namespace quire::cli {
namespace {

constexpr size_t kMaxSessionBytes = size_t{4} << 30;

struct ReplayFlags {
  std::string file, base_url = "http://127.0.0.1:8000", cold_url, model, api_key, output_json;
  int64_t max_tokens = 0;
  bool parallel = false, check = false;
};

// Another one for each run.
std::string new_salt() {
  std::random_device random;
  return "replay-" + std::to_string(random()) + std::to_string(random());
}

int replay(const ReplayFlags& flags) {
  std::istringstream file(formats::read_text_file(flags.file, kMaxSessionBytes));
  const bench::Turns turns = bench::read_session(file, flags.file);
  const bench::LoadOptions load{
      .server = bench::parse_base_url(flags.base_url),
      .path = {},
      .authorization = flags.api_key.empty() ? "" : "Bearer " + flags.api_key,
      .max_concurrency = 0,
      .takes_empty_answers = true};
  bench::ReplayChange change{.model = flags.model.empty() ? served_model(load) : flags.model,
                             .max_tokens = {},
                             .comparable = flags.check || !flags.cold_url.empty(),
                             .cache_salt = {}};
  if (flags.max_tokens > 0) change.max_tokens = flags.max_tokens;
  bench::print_turn_head();
  const TimePoint start = Clock::now();
  const auto requests = requests_of(turns, change);
  const auto records = flags.parallel ? run_agents(load, turns, requests)
                                      : run_in_order(load, turns, requests, /*prints=*/true);
  json::object figures = summarise(records, seconds_since(start));
  bench::print_summary(figures);
  bool good = figures.at("failed").as_int64() == 0;
  if (change.comparable) {
    bench::LoadOptions cold = load;
    if (!flags.cold_url.empty()) cold.server = bench::parse_base_url(flags.cold_url);
    const std::string salt = flags.cold_url.empty() ? new_salt() : "";
    const int64_t different = compare_runs(
        turns, records, run_in_order(cold, turns, requests_of(turns, change, salt), false));
    figures["different_from_cold"] = different;
    good = good && different == 0;
  }
  if (!flags.output_json.empty()) {
    figures["details"] = turn_details(turns, records);
    write_text(flags.output_json, dump_json(figures), "--output-json");
  }
  return good ? 0 : 1;
}

}  // namespace

void add_replay(CLI::App& app, int& status) {
  auto flags = std::make_shared<ReplayFlags>();
  CLI::App* command = app.add_subcommand(
      "replay", "Send a recorded session to a running server: what its prefix cache is worth");
  command
      ->add_option("file", flags->file,
                   "JSON lines: {\"agent\": \"main\", \"path\": \"/v1/messages\", \"body\": {...}}")
      ->required();
  command->add_option("--base-url", flags->base_url, "http://HOST:PORT")->capture_default_str();
  command->add_option("--model", flags->model, "Name to ask for; default: the server's first");
  command->add_option("--api-key", flags->api_key, "Sent as a bearer token")
      ->envname("OPENAI_API_KEY");
  command->add_option("--max-tokens", flags->max_tokens, "Answers get no longer than this")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command->add_flag("--parallel", flags->parallel,
                    "All agents at once; default: in the order of the file");
  command->add_flag("--check", flags->check,
                    "Send all once more, each with a `cache_salt` of its own, and compare the "
                    "answers with ==; greedily, with log-probabilities where the API has them");
  command->add_option(
      "--cold-url", flags->cold_url,
      "Compare with this server's answers instead, which must have no prefix cache");
  command->add_option("--output-json", flags->output_json, "Write the figures to a JSON file");
  command->callback([flags, &status] { status = replay(*flags); });
}

}  // namespace quire::cli
