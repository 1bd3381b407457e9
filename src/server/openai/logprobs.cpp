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

json::value LogprobsFormat::completion(std::span<const SessionToken> tokens) const {
  json::array offsets, logprobs, texts, tops;
  for (const SessionToken& token : tokens) {
    offsets.push_back(token.text_offset);
    texts.push_back(json::value(token_text(token.id)));
    if (!token.logprob) {
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    logprobs.push_back(finite(token.logprob->logprob));
    // Different tokens may look the same; the likelier one is first and stays.
    json::object top{{token_text(token.id), finite(token.logprob->logprob)}};
    for (const auto& [id, logprob] : token.logprob->top)
      top.emplace(token_text(id), finite(logprob));
    tops.push_back(std::move(top));
  }
  return json::object{{"text_offset", std::move(offsets)},
                      {"token_logprobs", std::move(logprobs)},
                      {"tokens", std::move(texts)},
                      {"top_logprobs", std::move(tops)}};
}

json::object LogprobsFormat::chat_entry(int32_t id, float logprob) const {
  json::array bytes;
  for (const char c : tokenizer_.token_bytes(id)) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token_text(id)}, {"logprob", finite(logprob)}, {"bytes", std::move(bytes)}};
}

json::value LogprobsFormat::chat(std::span<const SessionToken> tokens) const {
  json::array content;
  for (const SessionToken& token : tokens) {
    if (token.from_prompt || !token.logprob) continue;
    json::object entry = chat_entry(token.id, token.logprob->logprob);
    json::array top;
    for (const auto& [id, logprob] : token.logprob->top) top.push_back(chat_entry(id, logprob));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return json::object{{"content", std::move(content)}};
}

json::value LogprobsFormat::prompt(std::span<const engine::TokenLogprob> entries) const {
  json::array out{nullptr};  // nothing predicts the first token
  for (const engine::TokenLogprob& entry : entries) {
    json::object tokens;
    const auto add = [&](int32_t id, float logprob, int64_t rank) {
      tokens.emplace(std::to_string(id), json::object{{"logprob", finite(logprob)},
                                                      {"rank", rank},
                                                      {"decoded_token", token_text(id)}});
    };
    add(entry.token, entry.logprob, entry.rank);
    for (size_t i = 0; i < entry.top.size(); ++i)
      add(entry.top[i].first, entry.top[i].second, static_cast<int64_t>(i) + 1);
    out.push_back(std::move(tokens));
  }
  return out;
}

}  // namespace quire::server::openai
