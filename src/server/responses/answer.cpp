#include "server/responses/answer.h"

#include <ctime>

#include "server/http/sse.h"

namespace quire::server::responses {
namespace {

std::string json_text(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

// Nothing is billed for writing to the prefix cache.
void append_usage(std::string& out, const Usage& usage) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  out += "{\"input_tokens\":" + number(usage.prompt_tokens) +
         ",\"input_tokens_details\":{\"cached_tokens\":" + number(usage.cached_tokens) +
         ",\"cache_write_tokens\":0},\"output_tokens\":" + number(usage.completion_tokens) +
         ",\"output_tokens_details\":{\"reasoning_tokens\":" +
         number(usage.reasoning_tokens.value_or(0)) +
         "},\"total_tokens\":" + number(usage.prompt_tokens + usage.completion_tokens) + "}";
}

// The codes that an answer's `error` may have.
const char* code_of(const ApiError& error) {
  if (error.status == 429) return "rate_limit_exceeded";
  return error.status < 500 ? "invalid_prompt" : "server_error";
}

}  // namespace

ResponseFormat::State ResponseFormat::ended(const Finish& finish, const Usage& usage) {
  const bool complete = finish.reason == engine::FinishReason::kStop;
  return {complete ? "completed" : "incomplete", complete ? "completed" : "incomplete", &usage,
          nullptr};
}

void ResponseFormat::append_response(std::string& out, std::span<const OutputItem> items,
                                     const State& state) const {
  const std::string_view status = state.status;
  out += "{\"id\":" + json_text("resp_" + info_.id) +
         ",\"object\":\"response\",\"created_at\":" + std::to_string(info_.created) +
         ",\"status\":" + json_text(status) + ",\"completed_at\":" +
         (status == "completed" ? std::to_string(std::time(nullptr)) : "null") + ",\"error\":";
  if (state.error != nullptr) {
    out += "{\"code\":" + json_text(code_of(*state.error)) +
           ",\"message\":" + json_text(state.error->message) + "}";
  } else {
    out += "null";
  }
  out += ",\"incomplete_details\":";
  out += status == "incomplete" ? R"({"reason":"max_output_tokens"})" : "null";
  out += ",\"model\":" + json_text(info_.model) +
         ",\"system_fingerprint\":" + json_or_null(info_.fingerprint) + ",\"output\":";
  append_items(out, items, state.last_item_status, *info_.echo);
  out += R"(,"background":false,"previous_response_id":null,"service_tier":"default",)"
         R"("store":false,"top_logprobs":0,"truncation":"disabled","usage":)";
  if (state.usage != nullptr) {
    append_usage(out, *state.usage);
  } else {
    out += "null";
  }
  out += "," + info_.echo->members + "}";
}

OutputItem ResponseFormat::new_item(Kind kind, size_t index) const {
  constexpr const char* kPrefixes[] = {"rs_", "msg_", "fc_"};
  OutputItem item;
  item.kind = kind;
  item.id = kPrefixes[static_cast<size_t>(kind)] + info_.id + "_" + std::to_string(index);
  return item;
}

// An answer that holds nothing is an empty message: programs look at the first item.
std::vector<OutputItem> ResponseFormat::items_of(const TextDelta& answer) const {
  std::vector<OutputItem> items;
  const auto add = [&](Kind kind, const std::string& text) -> OutputItem& {
    items.push_back(new_item(kind, items.size()));
    items.back().text = text;
    return items.back();
  };
  if (!answer.reasoning.empty()) add(Kind::kReasoning, answer.reasoning);
  if (!answer.text.empty() || (items.empty() && answer.calls.empty()))
    add(Kind::kMessage, answer.text);
  for (const CallDelta& call : answer.calls) {
    OutputItem& item = add(Kind::kCall, call.arguments);
    item.call_id = call.id;
    item.name = call.name;
  }
  return items;
}

AnswerBody ResponseFormat::body(const std::vector<std::unique_ptr<Session>>&,
                                const std::vector<TextDelta>& choices, const Usage& usage) const {
  AnswerBody body;
  body.add([this, &answer = choices.front(), usage](std::string& out, openai::JsonList&) {
    append_response(out, items_of(answer), ended(answer.finish.value_or(Finish()), usage));
  });
  return body;
}

void ResponseFormat::add_event(std::string_view type, std::string_view members, std::string& out) {
  std::string data = "{\"type\":" + json_text(type) +
                     ",\"sequence_number\":" + std::to_string(num_events_++) + ",";
  data += members;
  data += '}';
  out += http::sse_event(type, data);
}

void ResponseFormat::add_response(std::string_view type, const State& state, std::string& out) {
  std::string members = "\"response\":";
  append_response(members, items_, state);
  add_event(type, members, out);
}

std::string ResponseFormat::first_events() {
  std::string out;
  add_response("response.created", {}, out);
  add_response("response.in_progress", {}, out);
  return out;
}

std::string ResponseFormat::place(bool has_content) const {
  return "\"item_id\":" + json_text(items_.back().id) +
         ",\"output_index\":" + std::to_string(items_.size() - 1) +
         (has_content ? ",\"content_index\":0" : "");
}

void ResponseFormat::open(OutputItem item, std::string& out) {
  close("completed", out);
  items_.push_back(std::move(item));
  is_open_ = true;
  const OutputItem& opened = items_.back();
  std::string members = "\"output_index\":" + std::to_string(items_.size() - 1) + ",\"item\":";
  append_item(members, opened, "in_progress", *info_.echo);
  add_event("response.output_item.added", members, out);
  if (opened.kind == Kind::kCall) return;
  members = place(true) + ",\"part\":";
  append_part(members, opened);
  add_event("response.content_part.added", members, out);
}

void ResponseFormat::close(const char* status, std::string& out) {
  if (!std::exchange(is_open_, false)) return;
  const OutputItem& item = items_.back();
  const std::string text = json_text(item.text);
  if (item.kind == Kind::kCall) {
    add_event("response.function_call_arguments.done", place(false) + ",\"arguments\":" + text,
              out);
  } else {
    const bool is_text = item.kind == Kind::kMessage;
    add_event(is_text ? "response.output_text.done" : "response.reasoning_text.done",
              place(true) + ",\"text\":" + text + (is_text ? ",\"logprobs\":[]" : ""), out);
    std::string members = place(true) + ",\"part\":";
    append_part(members, item);
    add_event("response.content_part.done", members, out);
  }
  std::string members = "\"output_index\":" + std::to_string(items_.size() - 1) + ",\"item\":";
  append_item(members, item, status, *info_.echo);
  add_event("response.output_item.done", members, out);
}

void ResponseFormat::write_text(Kind kind, std::string_view text, std::string& out) {
  if (text.empty()) return;
  if (!is_open_ || items_.back().kind != kind) open(new_item(kind, items_.size()), out);
  items_.back().text += text;
  const bool is_text = kind == Kind::kMessage;
  add_event(is_text ? "response.output_text.delta" : "response.reasoning_text.delta",
            place(true) + ",\"delta\":" + json_text(text) + (is_text ? ",\"logprobs\":[]" : ""),
            out);
}

bool ResponseFormat::is_open_call(const CallDelta& call) const {
  return is_open_ && items_.back().kind == Kind::kCall && open_call_ == call.index;
}

void ResponseFormat::write_call(const CallDelta& call, std::string& out) {
  if (!is_open_call(call)) {
    OutputItem item = new_item(Kind::kCall, items_.size());
    item.call_id = call.id;
    item.name = call.name;
    open(std::move(item), out);
    open_call_ = call.index;
  }
  if (call.arguments.empty()) return;
  items_.back().text += call.arguments;
  add_event("response.function_call_arguments.delta",
            place(false) + ",\"delta\":" + json_text(call.arguments), out);
}

std::string ResponseFormat::events(int64_t, const Session&, const TextDelta& delta, const Usage&) {
  std::string out;
  // The rest of a call goes before a text that follows it, a new one behind a text that leads to
  // it.
  const bool goes_on = !delta.calls.empty() && is_open_call(delta.calls.front());
  if (goes_on) write_call(delta.calls.front(), out);
  write_text(Kind::kReasoning, delta.reasoning, out);
  write_text(Kind::kMessage, delta.text, out);
  for (size_t i = goes_on ? 1 : 0; i < delta.calls.size(); ++i) write_call(delta.calls[i], out);
  if (delta.finish) finish_ = *delta.finish;
  return out;
}

std::string ResponseFormat::last_events(const Usage& usage) {
  std::string out;
  if (items_.empty()) open(new_item(Kind::kMessage, 0), out);
  const State state = ended(finish_, usage);
  close(state.last_item_status, out);
  add_response(std::string("response.") + state.status, state, out);
  return out;
}

// What was open stays so: no item has ended that is not whole.
std::string ResponseFormat::error_events(const ApiError& error) {
  std::string out;
  State state;
  state.status = "failed";
  state.last_item_status = is_open_ ? "incomplete" : "completed";
  state.error = &error;
  add_response("response.failed", state, out);
  return out;
}

}  // namespace quire::server::responses
