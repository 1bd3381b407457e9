#include "bench/serve/replay_run.h"

#include <future>
#include <map>

namespace quire::bench {

std::vector<LoadRequest> requests_of(const Turns& turns, ReplayChange change,
                                     const std::string& salt) {
  std::vector<LoadRequest> requests;
  for (size_t i = 0; i < turns.size(); ++i) {
    if (!salt.empty()) change.cache_salt = salt + "-" + std::to_string(i);
    requests.push_back({.body = replayed_body(turns[i], change), .path = turns[i].path});
  }
  return requests;
}

std::vector<LoadRecord> run_in_order(const LoadOptions& load, const Turns& turns,
                                     const std::vector<LoadRequest>& requests, bool prints) {
  std::vector<LoadRecord> records;
  for (size_t i = 0; i < requests.size(); ++i) {
    records.push_back(run_load(load, {requests[i]}).front());
    if (prints) print_turn(i, turns[i], records.back());
  }
  return records;
}

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

}  // namespace quire::bench
