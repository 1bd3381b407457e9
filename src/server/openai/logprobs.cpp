#include "server/openai/logprobs.h"

#include <algorithm>

#include "text/utf8.h"

namespace quire::server::openai {
namespace {

// JSON has no infinity; both APIs write this for a token that cannot come.
double finite(float logprob) { return std::max(static_cast<double>(logprob), -9999.0); }

}  // namespace

std::string LogprobsFormat::token_text(int32_t id) const {
  if (as_ids_) return "token_id:" + std::to_string(id);
  // Part of a character becomes U+FFFD here, so that keys that look the same are the same.
  std::string text;
  text::Utf8Stream stream;
  stream.push(tokenizer_.token_bytes(id), text);
  stream.flush(text);
  return text;
}

void LogprobsFormat::append_offsets(std::string& out, JsonList& list,
                                    std::span<const SessionToken> tokens) const {
  for (const SessionToken& token : tokens) {
    list.next(out);
    out += std::to_string(token.text_offset);
  }
}

void LogprobsFormat::append_logprobs(std::string& out, JsonList& list,
                                     std::span<const SessionToken> tokens) const {
  for (const SessionToken& token : tokens) {
    list.next(out);
    out += token.logprob ? dump_json(finite(token.logprob->logprob)) : "null";
  }
}

void LogprobsFormat::append_tokens(std::string& out, JsonList& list,
                                   std::span<const SessionToken> tokens) const {
  for (const SessionToken& token : tokens) {
    list.next(out);
    append_json_string(out, token_text(token.id));
  }
}

void LogprobsFormat::append_tops(std::string& out, JsonList& list,
                                 std::span<const SessionToken> tokens) const {
  for (const SessionToken& token : tokens) {
    list.next(out);
    if (!token.logprob) {
      out += "null";
      continue;
    }
    // Different tokens may look the same; the likelier one is first and stays.
    json::object top{{token_text(token.id), finite(token.logprob->logprob)}};
    for (const auto& [id, logprob] : token.logprob->top)
      top.emplace(token_text(id), finite(logprob));
    out += dump_json(top);
  }
}

json::object LogprobsFormat::chat_entry(int32_t id, float logprob) const {
  json::array bytes;
  for (const char c : tokenizer_.token_bytes(id)) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token_text(id)}, {"logprob", finite(logprob)}, {"bytes", std::move(bytes)}};
}

void LogprobsFormat::append_content(std::string& out, JsonList& list,
                                    std::span<const SessionToken> tokens) const {
  for (const SessionToken& token : tokens) {
    if (token.from_prompt || !token.logprob) continue;
    list.next(out);
    json::object entry = chat_entry(token.id, token.logprob->logprob);
    json::array top;
    for (const auto& [id, logprob] : token.logprob->top) top.push_back(chat_entry(id, logprob));
    entry["top_logprobs"] = std::move(top);
    out += dump_json(entry);
  }
}

void LogprobsFormat::append_prompt(std::string& out, JsonList& list,
                                   std::span<const engine::TokenLogprob> entries) const {
  for (const engine::TokenLogprob& entry : entries) {
    list.next(out);
    json::object tokens;
    const auto add = [&](int32_t id, float logprob, int64_t rank) {
      tokens.emplace(std::to_string(id), json::object{{"logprob", finite(logprob)},
                                                      {"rank", rank},
                                                      {"decoded_token", token_text(id)}});
    };
    add(entry.token, entry.logprob, entry.rank);
    for (size_t i = 0; i < entry.top.size(); ++i)
      add(entry.top[i].first, entry.top[i].second, static_cast<int64_t>(i) + 1);
    out += dump_json(tokens);
  }
}

}  // namespace quire::server::openai
