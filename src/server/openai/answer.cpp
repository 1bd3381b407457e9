#include "server/openai/answer.h"

namespace quire::server::openai {

const char* finish_reason_name(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::kStop:
      return "stop";
    case engine::FinishReason::kLength:
      return "length";
    case engine::FinishReason::kAbort:
      return "abort";
    case engine::FinishReason::kError:
      return "error";
  }
  return "error";
}

namespace {

template <class Ids>
void append_ids(std::string& out, const char* key, const Ids& ids) {
  out += ",\"";
  out += key;
  out += "\":[";
  const char* separator = "";
  for (const int32_t id : ids) {
    out += separator + std::to_string(id);
    separator = ",";
  }
  out += ']';
}

std::vector<int32_t> answer_ids(const TextDelta& delta) {
  std::vector<int32_t> ids;
  for (const SessionToken& token : delta.tokens)
    if (!token.from_prompt) ids.push_back(token.id);
  return ids;
}

void append_usage(std::string& out, const Usage& usage) {
  out += ",\"usage\":{\"prompt_tokens\":" + std::to_string(usage.prompt_tokens) +
         ",\"total_tokens\":" + std::to_string(usage.prompt_tokens + usage.completion_tokens) +
         ",\"completion_tokens\":" + std::to_string(usage.completion_tokens) +
         ",\"prompt_tokens_details\":{\"cached_tokens\":" + std::to_string(usage.cached_tokens) +
         "}}";
}

}  // namespace

AnswerWriter::AnswerWriter(AnswerInfo info, std::shared_ptr<const text::Tokenizer> tokenizer,
                           bool tokens_as_ids)
    : info_(std::move(info)),
      tokenizer_(std::move(tokenizer)),
      logprobs_(*tokenizer_, tokens_as_ids) {}

bool AnswerWriter::is_worth_sending(const TextDelta& delta, bool first) const {
  if (!delta.text.empty() || delta.finish) return true;
  if (!delta.tokens.empty() && (info_.logprobs || info_.token_ids)) return true;
  return first && info_.is_chat;  // the role
}

void AnswerWriter::open(std::string& out, bool chunk) const {
  out += "{\"id\":";
  append_json_string(out, info_.id);
  out += ",\"object\":\"";
  out += !info_.is_chat ? "text_completion" : chunk ? "chat.completion.chunk" : "chat.completion";
  out += "\",\"created\":" + std::to_string(info_.created) + ",\"model\":";
  append_json_string(out, info_.model);
  out += ",\"choices\":[";
}

void AnswerWriter::append_chat_text(std::string& out, const TextDelta& delta, bool chunk,
                                    bool first) const {
  out += chunk ? ",\"delta\":{" : ",\"message\":{";
  if (!chunk || first) {
    out += "\"role\":";
    append_json_string(out, info_.role);
    out += ',';
  }
  out += "\"content\":";
  append_json_string(out, delta.text);
  out += '}';
}

void AnswerWriter::append_finish(std::string& out, const TextDelta& delta) const {
  if (!delta.finish) {
    out += ",\"finish_reason\":null";
    return;
  }
  out += ",\"finish_reason\":\"";
  out += finish_reason_name(delta.finish->reason);
  out += "\",\"stop_reason\":";
  if (const auto* text = std::get_if<std::string>(&delta.finish->stop_reason)) {
    append_json_string(out, *text);
  } else if (const auto* id = std::get_if<int32_t>(&delta.finish->stop_reason)) {
    out += std::to_string(*id);
  } else {
    out += "null";
  }
}

void AnswerWriter::append_prompt_extras(std::string& out, const Session& session) const {
  if (info_.token_ids) append_ids(out, "prompt_token_ids", session.prompt());
  if (info_.prompt_logprobs)
    out += ",\"prompt_logprobs\":" + dump_json(logprobs_.prompt(session.prompt_logprobs()));
}

void AnswerWriter::append_choice(std::string& out, int64_t index, const Session& session,
                                 const TextDelta& delta, bool chunk, bool first) const {
  out += "{\"index\":" + std::to_string(index);
  if (info_.is_chat) {
    append_chat_text(out, delta, chunk, first);
  } else {
    out += ",\"text\":";
    append_json_string(out, delta.text);
  }
  out += ",\"logprobs\":";
  if (info_.logprobs) {
    out += dump_json(info_.is_chat ? logprobs_.chat(delta.tokens)
                                   : logprobs_.completion(delta.tokens));
  } else {
    out += "null";
  }
  append_finish(out, delta);
  if (info_.token_ids) append_ids(out, "token_ids", answer_ids(delta));
  if (!info_.is_chat && first) append_prompt_extras(out, session);
  out += '}';
}

std::string AnswerWriter::chunk(int64_t index, const Session& session, const TextDelta& delta,
                                bool first, const Usage* usage) const {
  std::string out;
  open(out, true);
  append_choice(out, index, session, delta, true, first);
  out += ']';
  if (info_.is_chat && first) append_prompt_extras(out, session);
  if (usage != nullptr) append_usage(out, *usage);
  out += '}';
  return out;
}

std::string AnswerWriter::usage_chunk(const Usage& usage) const {
  std::string out;
  open(out, true);
  out += ']';
  append_usage(out, usage);
  out += '}';
  return out;
}

std::string AnswerWriter::body(const std::vector<std::unique_ptr<Session>>& sessions,
                               const std::vector<TextDelta>& choices, const Usage& usage) const {
  std::string out;
  open(out, false);
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) out += ',';
    append_choice(out, static_cast<int64_t>(i), *sessions[i], choices[i], false, true);
  }
  out += ']';
  // All choices of a chat have one prompt.
  if (info_.is_chat) append_prompt_extras(out, *sessions.front());
  append_usage(out, usage);
  out += '}';
  return out;
}

}  // namespace quire::server::openai
