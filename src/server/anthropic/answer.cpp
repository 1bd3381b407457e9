#include "server/anthropic/answer.h"

#include <span>

#include "server/http/sse.h"

namespace quire::server::anthropic {
namespace {

// Clients keep it beside the thinking and send both back. Nothing here is signed.
constexpr std::string_view kSignature = "quire";

constexpr std::string_view kNoThinking = R"({"type":"thinking","thinking":"","signature":""})";
constexpr std::string_view kNoText = R"({"type":"text","text":""})";

std::string json_text(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

// As Anthropic counts: what was read from the cache is no input. Nothing is billed for writing it.
void append_usage(std::string& out, const Usage& usage) {
  out +=
      "\"usage\":{\"input_tokens\":" + std::to_string(usage.prompt_tokens - usage.cached_tokens) +
      ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":" +
      std::to_string(usage.cached_tokens) +
      ",\"output_tokens\":" + std::to_string(usage.completion_tokens) + "}";
}

// The arguments of a call as an object. A call that was cut off has text that is none.
std::string input_of(const std::string& arguments) {
  if (arguments.empty()) return "{}";
  const auto parsed = parse_json(arguments);
  if (parsed && parsed->is_object()) return dump_json(*parsed);
  return "{\"arguments\":" + json_text(arguments) + "}";
}

std::string tool_use(const CallDelta& call, const std::string& input) {
  return R"({"type":"tool_use","id":)" + json_text(call.id) + ",\"name\":" + json_text(call.name) +
         ",\"input\":" + input + "}";
}

}  // namespace

void MessageFormat::add_headers(http::Response& head) const {
  head.headers.emplace_back("request-id", info_.request_id);
}

const char* MessageFormat::stop_reason(const Finish& finish) const {
  if (finish.calls_tools) return "tool_use";
  if (finish.reason != engine::FinishReason::kStop)
    return info_.cut_by_context ? "model_context_window_exceeded" : "max_tokens";
  return std::holds_alternative<std::string>(finish.stop_reason) ? "stop_sequence" : "end_turn";
}

void MessageFormat::append_stop(std::string& out, const Finish& finish) const {
  out += "\"stop_reason\":\"";
  out += stop_reason(finish);
  out += "\",\"stop_sequence\":";
  const auto* text = std::get_if<std::string>(&finish.stop_reason);
  out += text != nullptr && !finish.calls_tools ? json_text(*text) : "null";
}

void MessageFormat::append_begin(std::string& out) const {
  out += "{\"id\":" + json_text(info_.id) + R"(,"type":"message","role":"assistant","model":)" +
         json_text(info_.model) + ",";
}

std::string MessageFormat::message(const TextDelta& answer, const Usage& usage) const {
  std::vector<std::string> blocks;
  if (!answer.reasoning.empty()) {
    blocks.push_back(R"({"type":"thinking","thinking":)" + json_text(answer.reasoning) +
                     ",\"signature\":" + json_text(kSignature) + "}");
  }
  // Programs look at content[0]: it is never missing.
  if (!answer.text.empty() || (answer.reasoning.empty() && answer.calls.empty()))
    blocks.push_back(R"({"type":"text","text":)" + json_text(answer.text) + "}");
  for (const CallDelta& call : answer.calls)
    blocks.push_back(tool_use(call, input_of(call.arguments)));
  std::string out;
  append_begin(out);
  out += "\"content\":[";
  for (size_t i = 0; i < blocks.size(); ++i) (out += i > 0 ? "," : "") += blocks[i];
  out += "],";
  append_stop(out, answer.finish.value_or(Finish()));
  out += ',';
  append_usage(out, usage);
  return out + "}";
}

AnswerBody MessageFormat::body(const std::vector<std::unique_ptr<Session>>&,
                               const std::vector<TextDelta>& choices, const Usage& usage) const {
  AnswerBody body;
  body.add([this, &answer = choices.front(), usage](std::string& out, openai::JsonList&) {
    out += message(answer, usage);
  });
  return body;
}

void MessageFormat::start(const Usage& usage, std::string& out) {
  if (std::exchange(begun_, true)) return;
  std::string data = R"({"type":"message_start","message":)";
  append_begin(data);
  data += R"("content":[],"stop_reason":null,"stop_sequence":null,)";
  append_usage(data, usage);
  out += http::sse_event("message_start", data + "}}");
  out += http::sse_event("ping", R"({"type":"ping"})");
}

void MessageFormat::open(Block block, std::string_view content_block, std::string& out) {
  close(out);
  open_ = block;
  out +=
      http::sse_event("content_block_start",
                      R"({"type":"content_block_start","index":)" + std::to_string(num_blocks_++) +
                          ",\"content_block\":" + std::string(content_block) + "}");
}

void MessageFormat::close(std::string& out) {
  if (open_ == Block::kNone) return;
  if (open_ == Block::kThinking) write_delta("signature_delta", "signature", kSignature, out);
  open_ = Block::kNone;
  out += http::sse_event("content_block_stop", R"({"type":"content_block_stop","index":)" +
                                                   std::to_string(num_blocks_ - 1) + "}");
}

void MessageFormat::write_delta(const char* type, const char* key, std::string_view text,
                                std::string& out) const {
  out += http::sse_event("content_block_delta", R"({"type":"content_block_delta","index":)" +
                                                    std::to_string(num_blocks_ - 1) +
                                                    R"(,"delta":{"type":")" + type + "\",\"" + key +
                                                    "\":" + json_text(text) + "}}");
}

void MessageFormat::write_call(const CallDelta& call, std::string& out) {
  if (open_ != Block::kToolUse || open_call_ != call.index) {
    open(Block::kToolUse, tool_use(call, "{}"), out);
    open_call_ = call.index;
  }
  if (!call.arguments.empty()) write_delta("input_json_delta", "partial_json", call.arguments, out);
}

std::string MessageFormat::events(int64_t, const Session&, const TextDelta& delta,
                                  const Usage& usage) {
  std::string out;
  start(usage, out);
  std::span<const CallDelta> calls = delta.calls;
  // The rest of the open one was written before what else is there.
  if (!calls.empty() && open_ == Block::kToolUse && calls.front().index == open_call_) {
    write_call(calls.front(), out);
    calls = calls.subspan(1);
  }
  if (!delta.reasoning.empty()) {
    if (open_ != Block::kThinking) open(Block::kThinking, kNoThinking, out);
    write_delta("thinking_delta", "thinking", delta.reasoning, out);
  }
  if (!delta.text.empty()) {
    if (open_ != Block::kText) open(Block::kText, kNoText, out);
    write_delta("text_delta", "text", delta.text, out);
  }
  for (const CallDelta& call : calls) write_call(call, out);
  if (delta.finish) finish_ = *delta.finish;
  return out;
}

std::string MessageFormat::last_events(const Usage& usage) {
  std::string out;
  start(usage, out);
  if (num_blocks_ == 0) open(Block::kText, kNoText, out);
  close(out);
  std::string data = R"({"type":"message_delta","delta":{)";
  append_stop(data, finish_);
  data += "},";
  append_usage(data, usage);
  out += http::sse_event("message_delta", data + "}");
  return out + http::sse_event("message_stop", R"({"type":"message_stop"})");
}

std::string MessageFormat::error_events(const ApiError& error) {
  return http::sse_event("error", dump_json(anthropic_error_body(error, info_.request_id)));
}

}  // namespace quire::server::anthropic
