// quire replay: a recorded session against a running server.
#include <fstream>
#include <future>
#include <map>
#include <random>

#include "base/clock.h"
#include "base/error.h"
#include "cli/bench.h"
#include "cli/bench_client.h"
#include "cli/commands.h"
#include "cli/replay_report.h"
#include "cli/replay_session.h"

namespace quire::cli {
namespace {

struct ReplayFlags {
  std::string file, base_url = "http://127.0.0.1:8000", cold_url, model, api_key, output_json;
  int64_t max_tokens = 0;
  bool parallel = false, check = false;
};

std::vector<LoadRequest> requests_of(const Turns& turns, ReplayChange change,
                                     const std::string& salt = "") {
  std::vector<LoadRequest> requests;
  for (size_t i = 0; i < turns.size(); ++i) {
    if (!salt.empty()) change.cache_salt = salt + "-" + std::to_string(i);
    requests.push_back({.body = replayed_body(turns[i], change), .path = turns[i].path});
  }
  return requests;
}

// One after the other, as they were recorded.
std::vector<LoadRecord> run_in_order(const LoadOptions& load, const Turns& turns,
                                     const std::vector<LoadRequest>& requests, bool prints) {
  std::vector<LoadRecord> records;
  for (size_t i = 0; i < requests.size(); ++i) {
    records.push_back(run_load(load, {requests[i]}).front());
    if (prints) print_turn(i, turns[i], records.back());
  }
  return records;
}

// All agents at once; of each, one request after the other.
std::vector<LoadRecord> run_agents(LoadOptions load, const Turns& turns,
                                   const std::vector<LoadRequest>& requests) {
  load.max_concurrency = 1;
  std::map<std::string, std::vector<size_t>> agents;
  for (size_t i = 0; i < turns.size(); ++i) agents[turns[i].agent].push_back(i);
  std::vector<LoadRecord> records(turns.size());
  std::vector<std::future<void>> running;
  for (const auto& [agent, indices] : agents) {
    running.push_back(std::async(std::launch::async, [&, own = indices] {
      std::vector<LoadRequest> mine;
      for (const size_t i : own) mine.push_back(requests[i]);
      std::vector<LoadRecord> answers = run_load(load, mine);
      for (size_t k = 0; k < own.size(); ++k) records[own[k]] = std::move(answers[k]);
    }));
  }
  for (auto& agent : running) agent.get();
  for (size_t i = 0; i < turns.size(); ++i) print_turn(i, turns[i], records[i]);
  return records;
}

// Another one for each run.
std::string new_salt() {
  std::random_device random;
  return "replay-" + std::to_string(random()) + std::to_string(random());
}

int replay(const ReplayFlags& flags) {
  std::ifstream file(flags.file);
  if (!file) throw LoadError(flags.file + ": cannot be read");
  const Turns turns = read_session(file, flags.file);
  const LoadOptions load{.server = parse_base_url(flags.base_url),
                         .path = {},
                         .authorization = flags.api_key.empty() ? "" : "Bearer " + flags.api_key,
                         .max_concurrency = 0,
                         .takes_empty_answers = true};
  ReplayChange change{.model = flags.model.empty() ? served_model(load) : flags.model,
                      .max_tokens = {},
                      .comparable = flags.check || !flags.cold_url.empty(),
                      .cache_salt = {}};
  if (flags.max_tokens > 0) change.max_tokens = flags.max_tokens;
  print_turn_head();
  const TimePoint start = Clock::now();
  const auto requests = requests_of(turns, change);
  const auto records = flags.parallel ? run_agents(load, turns, requests)
                                      : run_in_order(load, turns, requests, /*prints=*/true);
  json::object figures = summarise(records, seconds_since(start));
  print_summary(figures);
  bool good = figures.at("failed").as_int64() == 0;
  if (change.comparable) {
    LoadOptions cold = load;
    if (!flags.cold_url.empty()) cold.server = parse_base_url(flags.cold_url);
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
