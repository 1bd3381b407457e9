#include "server/call_ids.h"

#include <algorithm>

namespace quire::server {
namespace {

constexpr size_t kLength = 9;
constexpr std::string_view kCharacters =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

bool is_short(const json::string& id) {
  return id.size() == kLength &&
         std::ranges::all_of(id, [](char c) { return kCharacters.find(c) != kCharacters.npos; });
}

// FNV-1a in 64 bits, of which nine characters hold 53.
json::string short_id(const json::string& id) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  json::string out;
  for (size_t i = 0; i < kLength; ++i, hash /= kCharacters.size())
    out += kCharacters[hash % kCharacters.size()];
  return out;
}

void shorten(json::object& holder, const char* key) {
  json::value* id = holder.if_contains(key);
  if (id != nullptr && id->is_string() && !is_short(id->get_string()))
    *id = short_id(id->get_string());
}

bool takes_id(const text::ChatTemplate& chat_template, const char* id, WorkBudget* budget) {
  const json::object call{{"id", id},
                          {"type", "function"},
                          {"function", {{"name", "f"}, {"arguments", json::object()}}}};
  const std::string messages = dump_json(json::array{
      json::object{{"role", "user"}, {"content", "Hi"}},
      json::object{{"role", "assistant"}, {"content", ""}, {"tool_calls", json::array{call}}},
      json::object{{"role", "tool"}, {"tool_call_id", id}, {"name", "f"}, {"content", "1"}}});
  text::ChatTemplateInput input;
  input.messages = messages;
  input.budget = budget;
  return chat_template.render(input).ok();
}

}  // namespace

bool wants_short_ids(const text::ChatTemplate& chat_template, WorkBudget* budget) {
  return !takes_id(chat_template, "call_0123456789abcdef", budget) &&
         takes_id(chat_template, "abcdefg12", budget);
}

void shorten_call_ids(json::array& messages) {
  for (json::value& value : messages) {
    json::object* message = value.if_object();
    if (message == nullptr) continue;
    shorten(*message, "tool_call_id");
    json::value* calls = message->if_contains("tool_calls");
    if (calls == nullptr || !calls->is_array()) continue;
    for (json::value& call : calls->get_array())
      if (json::object* one = call.if_object()) shorten(*one, "id");
  }
}

}  // namespace quire::server
