// From the bytes of a connection to what the engine would get: the HTTP parser, and behind it the
// JSON mappings of every endpoint that takes a body.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/auth.h"
#include "server/http/request_parser.h"
#include "server/openai/parse.h"

namespace {

using namespace quire;
using namespace quire::server;

openai::ParseContext context() {
  openai::ParseContext context;
  context.vocab_size = 1000;
  context.trust_request_chat_template = true;
  return context;
}

// What must hold for every request that is accepted.
void check_generation(const openai::GenerationRequest& request) {
  const openai::ParseContext limits = context();
  const engine::SamplingParams& sampling = request.sampling;
  QUIRE_CHECK(request.n >= 1 && request.n <= limits.limits.max_n);
  QUIRE_CHECK(sampling.temperature >= 0 && sampling.temperature <= 100);
  QUIRE_CHECK(sampling.top_p > 0 && sampling.top_p <= 1);
  QUIRE_CHECK(sampling.min_p >= 0 && sampling.min_p <= 1);
  QUIRE_CHECK(sampling.top_k >= 0 && sampling.repetition_penalty > 0);
  QUIRE_CHECK(sampling.logprobs >= -1 && sampling.logprobs <= limits.limits.max_logprobs);
  QUIRE_CHECK(!request.max_tokens || *request.max_tokens >= 0);
  QUIRE_CHECK(sampling.min_tokens >= 0);
  for (const auto& [id, bias] : sampling.logit_bias)
    QUIRE_CHECK(id >= 0 && id < limits.vocab_size && bias >= -100 && bias <= 100);
  for (const int32_t id : sampling.stop_token_ids) QUIRE_CHECK(id >= 0 && id < limits.vocab_size);
  QUIRE_CHECK(request.stop.size() <= static_cast<size_t>(limits.limits.max_stops));
  for (const auto& stop : request.stop) QUIRE_CHECK(!stop.empty());
}

void parse_body(const std::string& body) {
  const openai::ParseContext limits = context();
  if (const auto request = openai::parse_completion(body, limits)) {
    check_generation(*request);
    QUIRE_CHECK(!request->prompts.empty());
    QUIRE_CHECK(static_cast<int64_t>(request->prompts.size()) * request->n <=
                limits.limits.max_generations);
  }
  if (const auto request = openai::parse_chat(body, limits)) {
    check_generation(*request);
    QUIRE_CHECK(!request->chat.messages.empty());
    for (const auto& message : request->chat.messages)
      QUIRE_CHECK(message.at("content").is_string() && message.at("role").is_string());
  }
  if (!openai::parse_tokenize(body, limits)) (void)openai::parse_detokenize(body, limits);
}

// Feeds a connection's bytes in pieces; returns how many requests were complete.
size_t serve(std::string_view bytes, size_t step, bool parse_bodies) {
  std::string buffer;
  size_t requests = 0, at = 0;
  while (at < bytes.size() || !buffer.empty()) {
    http::RequestParser parser({1024, 1u << 16});
    while (!parser.done() && !parser.error()) {
      const size_t used = parser.put(buffer);
      QUIRE_CHECK(used <= buffer.size());
      buffer.erase(0, used);
      if (used > 0 && !buffer.empty()) continue;
      if (parser.done() || parser.error()) break;
      if (at >= bytes.size()) return requests;
      buffer += bytes.substr(at, step);
      at += step;
    }
    if (parser.error()) return requests;
    const http::Request request = parser.take();
    QUIRE_CHECK(!request.head.path.empty());
    QUIRE_CHECK(request.body.size() <= 1u << 16);
    (void)server::given_key(request.head);
    ++requests;
    if (parse_bodies) parse_body(request.body);
  }
  return requests;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  // The first byte says how the input is cut. A body alone, so that JSON is reached at once.
  if (data[0] == '{') {
    parse_body(std::string(reinterpret_cast<const char*>(data), size));
    return 0;
  }
  const size_t whole = serve(bytes, bytes.size() + 1, true);
  const size_t cut = serve(bytes, data[0] % 16 + 1, false);
  QUIRE_CHECK(whole == cut) << whole << " requests at once, " << cut << " in pieces";
  return 0;
}
