#pragma once
#include <string>
#include <vector>

#include "bench/serve/client.h"
#include "bench/serve/replay_report.h"

namespace quire::bench {

// The requests of a session; with a salt, each keeps its prompt apart from all others in the
// server's prefix cache.
std::vector<LoadRequest> requests_of(const Turns& turns, ReplayChange change,
                                     const std::string& salt = "");

// Sends them one after the other, as they were recorded, and prints a line for each if asked to.
std::vector<LoadRecord> run_in_order(const LoadOptions& load, const Turns& turns,
                                     const std::vector<LoadRequest>& requests, bool prints);

// All agents at once; of each, one request after the other. Prints a line for each at the end.
std::vector<LoadRecord> run_agents(LoadOptions load, const Turns& turns,
                                   const std::vector<LoadRequest>& requests);

}  // namespace quire::bench
