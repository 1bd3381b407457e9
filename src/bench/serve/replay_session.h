#pragma once
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace quire::bench {

// One request of a recorded session.
struct ReplayTurn {
  std::string agent;  // who sent it; requests of one agent follow one another
  std::string path;   // "/v1/messages"
  json::object body;
};

// A session, one JSON object a line: {"agent": "main", "path": "/v1/messages", "body": {...}}.
// `agent` may be left out. Throws LoadError naming `name` and the line.
std::vector<ReplayTurn> read_session(std::istream& file, const std::string& name);

// What a replay changes of the bodies.
struct ReplayChange {
  std::string model;                       // the name that the server knows
  std::optional<int64_t> max_tokens = {};  // answers get no longer
  bool comparable = false;                 // greedy, with log-probabilities where the API has them
  std::string cache_salt = {};             // not empty: keeps the prompt apart in the prefix cache
};

// The body to send: a stream with its usage, and the changes.
std::string replayed_body(const ReplayTurn& turn, const ReplayChange& change);

}  // namespace quire::bench
