#pragma once
#include <cstdint>
#include <vector>

#include "base/json.h"
#include "bench/serve/client.h"
#include "bench/serve/replay_session.h"

namespace quire::bench {

using Turns = std::vector<ReplayTurn>;

// The table, a line for each turn.
void print_turn_head();
void print_turn(size_t index, const ReplayTurn& turn, const LoadRecord& record);

// What all turns add up to; times are of those that did not fail.
json::object summarise(const std::vector<LoadRecord>& records, double seconds);
void print_summary(const json::object& figures);
json::array turn_details(const Turns& turns, const std::vector<LoadRecord>& records);

// Compares the answers with those of a run that found nothing in a prefix cache: texts, calls,
// log-probabilities, why they ended. Says on stderr what differs, and returns in how many turns. A
// cold run that did find something makes its turn different.
int64_t compare_runs(const Turns& turns, const std::vector<LoadRecord>& warm,
                     const std::vector<LoadRecord>& cold);

}  // namespace quire::bench
