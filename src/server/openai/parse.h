#pragma once
#include <string_view>

#include "base/result.h"
#include "server/openai/fields.h"
#include "server/openai/request.h"

namespace quire::server::openai {

struct ParseContext {
  RequestLimits limits;
  SamplingDefaults defaults;
  bool trust_request_chat_template = false;
  int64_t vocab_size = 0;
};

// JSON bodies to structs. Errors name the field. Fields that nobody knows are ignored, as OpenAI
// and vLLM do; fields that are known but not supported here are errors, unless they hold a value
// that changes nothing.
Result<CompletionRequest, ApiError> parse_completion(std::string_view body, const ParseContext&);
Result<ChatRequest, ApiError> parse_chat(std::string_view body, const ParseContext&);
Result<TokenizeRequest, ApiError> parse_tokenize(std::string_view body, const ParseContext&);
Result<DetokenizeRequest, ApiError> parse_detokenize(std::string_view body, const ParseContext&);

// The parts, each in a file of its own.
Result<json::object, ApiError> parse_body(std::string_view body, const ParseContext&);
void parse_sampling(Fields& fields, const ParseContext& context, GenerationRequest& out);
void parse_generation(Fields& fields, const ParseContext& context, GenerationRequest& out);
void parse_constraint(Fields& fields, const ParseContext& context, GenerationRequest& out);
void parse_chat_input(Fields& fields, const ParseContext& context, ChatInput& out);
// Ids inside the vocabulary; anything else is an error of the field `key`.
std::optional<std::vector<int32_t>> parse_token_ids(Fields& fields, std::string_view key,
                                                    const json::array& ids,
                                                    const ParseContext& context);

}  // namespace quire::server::openai
