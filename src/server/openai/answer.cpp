#include "server/openai/answer.h"

#include <algorithm>

#include "server/http/sse.h"

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
    case engine::FinishReason::kRefused:
    case engine::FinishReason::kOverloaded:
      return "error";
  }
  return "error";
}

namespace {

void append_ids(std::string& out, JsonList& list, std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    list.next(out);
    out += std::to_string(id);
  }
}

void append_answer_ids(std::string& out, JsonList& list, std::span<const SessionToken> tokens) {
  for (const SessionToken& token : tokens) {
    if (token.from_prompt) continue;
    list.next(out);
    out += std::to_string(token.id);
  }
}

AnswerBody::Step constant(const char* text) {
  return [text](std::string& out, JsonList&) { out += text; };
}

void append_usage(std::string& out, const Usage& usage) {
  out += ",\"usage\":{\"prompt_tokens\":" + std::to_string(usage.prompt_tokens) +
         ",\"total_tokens\":" + std::to_string(usage.prompt_tokens + usage.completion_tokens) +
         ",\"completion_tokens\":" + std::to_string(usage.completion_tokens) +
         ",\"prompt_tokens_details\":{\"cached_tokens\":" + std::to_string(usage.cached_tokens) +
         "}";
  if (usage.reasoning_tokens) {
    out += ",\"completion_tokens_details\":{\"reasoning_tokens\":" +
           std::to_string(*usage.reasoning_tokens) + "}";
  }
  out += '}';
}

// A call's first delta has its id and name. Whole calls have no index.
void append_call(std::string& out, const CallDelta& call, bool chunk) {
  out += '{';
  if (chunk) out += "\"index\":" + std::to_string(call.index) + ",";
  if (!call.id.empty()) {
    out += "\"id\":";
    append_json_string(out, call.id);
    out += ",\"type\":\"function\",";
  }
  out += "\"function\":{";
  if (!call.id.empty()) {
    out += "\"name\":";
    append_json_string(out, call.name);
    out += ',';
  }
  out += "\"arguments\":";
  append_json_string(out, call.arguments);
  out += "}}";
}

// What stands between the members of an object.
class JsonMembers {
 public:
  explicit JsonMembers(std::string& out) : out_(out) {}
  std::string& next() {
    if (std::exchange(any_, true)) out_ += ',';
    return out_;
  }

 private:
  std::string& out_;
  bool any_ = false;
};

void append_calls(std::string& out, const std::vector<CallDelta>& calls, bool chunk) {
  out += "\"tool_calls\":[";
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i > 0) out += ',';
    append_call(out, calls[i], chunk);
  }
  out += ']';
}

}  // namespace

AnswerWriter::AnswerWriter(AnswerInfo info, std::shared_ptr<const text::Tokenizer> tokenizer,
                           bool tokens_as_ids)
    : info_(std::move(info)),
      tokenizer_(std::move(tokenizer)),
      logprobs_(*tokenizer_, tokens_as_ids) {}

bool AnswerWriter::is_worth_sending(const TextDelta& delta, bool first) const {
  if (!delta.text.empty() || delta.finish) return true;
  if (!delta.reasoning.empty() || !delta.calls.empty()) return true;
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
  out += ",\"system_fingerprint\":" + json_or_null(info_.fingerprint) + ",\"choices\":[";
}

void AnswerWriter::append_chat_text(std::string& out, const TextDelta& delta, bool chunk,
                                    bool first) const {
  out += chunk ? ",\"delta\":{" : ",\"message\":{";
  JsonMembers members(out);
  if (!chunk || first) {
    members.next() += "\"role\":";
    append_json_string(out, info_.role);
  }
  const bool has_more = !delta.reasoning.empty() || !delta.calls.empty();
  if (!delta.text.empty() || !has_more) {
    members.next() += "\"content\":";
    append_json_string(out, delta.text);
  } else if (!chunk || first) {
    members.next() += "\"content\":null";
  }
  if (!delta.reasoning.empty()) {
    for (const char* key : {"reasoning_content", "reasoning"}) {
      (members.next() += '"') += key;
      out += "\":";
      append_json_string(out, delta.reasoning);
    }
  }
  if (!delta.calls.empty()) append_calls(members.next(), delta.calls, chunk);
  out += '}';
}

void AnswerWriter::append_finish(std::string& out, const TextDelta& delta) const {
  if (!delta.finish) {
    out += ",\"finish_reason\":null";
    return;
  }
  out += ",\"finish_reason\":\"";
  out += delta.finish->calls_tools ? "tool_calls" : finish_reason_name(delta.finish->reason);
  out += "\",\"stop_reason\":";
  if (const auto* text = std::get_if<std::string>(&delta.finish->stop_reason)) {
    append_json_string(out, *text);
  } else if (const auto* id = std::get_if<int32_t>(&delta.finish->stop_reason)) {
    out += std::to_string(*id);
  } else {
    out += "null";
  }
}

void AnswerWriter::add_prompt_extras(AnswerBody& body, const Session& session) const {
  if (info_.token_ids) {
    body.add(constant(",\"prompt_token_ids\":"));
    body.add_list(std::span(session.prompt()), append_ids);
  }
  if (!info_.prompt_logprobs) return;
  body.add(constant(",\"prompt_logprobs\":"));
  // Nothing predicts the first token.
  body.add([](std::string& out, JsonList& list) {
    list.open(out);
    list.next(out);
    out += "null";
  });
  body.add_items(std::span(session.prompt_logprobs()),
                 [this](std::string& out, JsonList& list, auto part) {
                   logprobs_.append_prompt(out, list, part);
                 });
  body.add(constant("]"));
}

void AnswerWriter::add_logprobs(AnswerBody& body, const TextDelta& delta) const {
  const std::span<const SessionToken> tokens(delta.tokens);
  using Append =
      void (LogprobsFormat::*)(std::string&, JsonList&, std::span<const SessionToken>) const;
  const auto add = [&](const char* key, Append append) {
    body.add(constant(key));
    body.add_list(tokens, [this, append](std::string& out, JsonList& list, auto part) {
      (logprobs_.*append)(out, list, part);
    });
  };
  if (info_.is_chat) {
    add("{\"content\":", &LogprobsFormat::append_content);
  } else {
    add("{\"text_offset\":", &LogprobsFormat::append_offsets);
    add(",\"token_logprobs\":", &LogprobsFormat::append_logprobs);
    add(",\"tokens\":", &LogprobsFormat::append_tokens);
    add(",\"top_logprobs\":", &LogprobsFormat::append_tops);
  }
  body.add(constant("}"));
}

void AnswerWriter::add_choice(AnswerBody& body, int64_t index, const Session& session,
                              const TextDelta& delta, bool chunk, bool first) const {
  body.add([this, index, &delta, chunk, first](std::string& out, JsonList&) {
    out += "{\"index\":" + std::to_string(index);
    if (info_.is_chat) {
      append_chat_text(out, delta, chunk, first);
    } else {
      out += ",\"text\":";
      append_json_string(out, delta.text);
    }
    out += ",\"logprobs\":";
    if (!info_.logprobs) out += "null";
  });
  if (info_.logprobs) add_logprobs(body, delta);
  body.add([this, &delta](std::string& out, JsonList&) { append_finish(out, delta); });
  if (info_.token_ids) {
    body.add(constant(",\"token_ids\":"));
    body.add_list(std::span(delta.tokens), append_answer_ids);
  }
  if (!info_.is_chat && first) add_prompt_extras(body, session);
  body.add(constant("}"));
}

std::string AnswerWriter::chunk(int64_t index, const Session& session, const TextDelta& delta,
                                bool first, const Usage* usage) const {
  AnswerBody body;
  body.add([this](std::string& out, JsonList&) { open(out, true); });
  add_choice(body, index, session, delta, true, first);
  body.add(constant("]"));
  if (info_.is_chat && first) add_prompt_extras(body, session);
  std::string out;
  while (body.next(out)) {
  }
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

std::string AnswerWriter::events(int64_t index, const Session& session, const TextDelta& delta,
                                 const Usage& usage) {
  const bool first = !begun_.contains(index);
  if (!is_worth_sending(delta, first)) return {};
  begun_.insert(index);
  return http::sse_event(
      chunk(index, session, delta, first, info_.usage_in_chunks ? &usage : nullptr));
}

std::string AnswerWriter::last_events(const Usage& usage) {
  return (info_.usage_at_end ? http::sse_event(usage_chunk(usage)) : "") +
         http::sse_event("[DONE]");
}

std::string AnswerWriter::error_events(const ApiError& error) {
  return http::sse_event(dump_json(error_body(error))) + http::sse_event("[DONE]");
}

AnswerBody AnswerWriter::body(const std::vector<std::unique_ptr<Session>>& sessions,
                              const std::vector<TextDelta>& choices, const Usage& usage) const {
  AnswerBody body;
  body.add([this](std::string& out, JsonList&) { open(out, false); });
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) body.add(constant(","));
    add_choice(body, static_cast<int64_t>(i), *sessions[i], choices[i], false, true);
  }
  body.add(constant("]"));
  // All choices of a chat have one prompt.
  if (info_.is_chat) add_prompt_extras(body, *sessions.front());
  body.add([usage](std::string& out, JsonList&) {
    append_usage(out, usage);
    out += '}';
  });
  return body;
}

}  // namespace quire::server::openai
