#include "bench/serve/replay_session.h"

#include <algorithm>
#include <array>
#include <istream>

#include "base/error.h"

namespace quire::bench {
namespace {

// What the APIs call the limit of an answer. A chat's and a completion's body may have none.
struct Api {
  std::string_view path;
  const char* max_tokens;
  bool is_openai = false;  // has stream_options
  bool is_chat = false;
};

constexpr std::array kApis = {
    Api{"/v1/chat/completions", "max_tokens", true, true},
    Api{"/v1/completions", "max_tokens", true},
    Api{"/v1/responses", "max_output_tokens"},
    Api{"/v1/messages", "max_tokens"},
};

const Api* find_api(std::string_view path) {
  const auto* const found = std::ranges::find(kApis, path, &Api::path);
  return found == kApis.end() ? nullptr : found;
}

ReplayTurn read_turn(const std::string& line, const std::string& place) {
  const auto fail = [&](const std::string& why) { return LoadError(place + ": " + why); };
  const auto parsed = parse_json(line);
  if (!parsed) throw fail(parsed.error());
  const json::object* object = parsed->if_object();
  if (!object) throw fail("it is no JSON object");
  ReplayTurn turn{.agent = "main", .path = {}, .body = {}};
  for (const auto& [key, value] : *object) {
    if (key == "agent" && value.is_string()) {
      turn.agent = value.get_string().c_str();
    } else if (key == "path" && value.is_string()) {
      turn.path = value.get_string().c_str();
    } else if (key == "body" && value.is_object()) {
      turn.body = value.get_object();
    } else {
      throw fail("\"" + std::string(key) + "\" is not known here, or of another type; a line has " +
                 "\"agent\" and \"path\", which are texts, and \"body\", an object");
    }
  }
  if (!find_api(turn.path)) {
    std::string list;
    for (const Api& api : kApis) list += (list.empty() ? "" : ", ") + std::string(api.path);
    throw fail("\"path\" must be one of " + list);
  }
  return turn;
}

void limit(json::object& body, const char* key, int64_t most) {
  const json::value* given = body.if_contains(key);
  if (given && given->is_int64()) most = std::min(most, given->get_int64());
  body[key] = most;
}

}  // namespace

std::vector<ReplayTurn> read_session(std::istream& file, const std::string& name) {
  std::vector<ReplayTurn> turns;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    turns.push_back(read_turn(line, name + ":" + std::to_string(number)));
  }
  if (turns.empty()) throw LoadError(name + ": there is no request in it");
  return turns;
}

std::string replayed_body(const ReplayTurn& turn, const ReplayChange& change) {
  const Api& api = *find_api(turn.path);
  json::object body = turn.body;
  body["model"] = change.model;
  body["stream"] = true;
  if (api.is_openai) body["stream_options"] = json::object{{"include_usage", true}};
  if (change.max_tokens) {
    const bool newer = api.is_chat && body.contains("max_completion_tokens");
    limit(body, newer ? "max_completion_tokens" : api.max_tokens, *change.max_tokens);
  }
  if (change.comparable) {
    body["temperature"] = 0;
    if (api.is_chat) {
      body["logprobs"] = true;
    } else if (api.is_openai) {
      body["logprobs"] = 1;
    }
  }
  if (!change.cache_salt.empty()) body["cache_salt"] = change.cache_salt;
  return dump_json(body);
}

}  // namespace quire::bench
