#pragma once
#include <functional>
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
  int64_t hidden_size = 0;           // of embeddings
  bool honours_priority = false;     // else a priority other than 0 is refused
  bool keep_billing_header = false;  // see anthropic/parse.h
  // Charges what parsing JSON that is inside a string will take, or says why it may not be parsed.
  // Null: it may be.
  std::function<std::optional<ApiError>(std::string_view)> charge_parsing = {};
  WorkBudget* budget = nullptr;  // of reading JSON; null: no limit
};

// JSON bodies to structs. Errors name the field. Unknown fields of a generation are accepted, as
// vLLM does, and listed; what becomes of the known ones is in known_fields.cpp.
Result<CompletionRequest, ApiError> parse_completion(std::string_view body, const ParseContext&);
Result<ChatRequest, ApiError> parse_chat(std::string_view body, const ParseContext&);
Result<TokenizeRequest, ApiError> parse_tokenize(std::string_view body, const ParseContext&);
Result<DetokenizeRequest, ApiError> parse_detokenize(std::string_view body, const ParseContext&);

// The parts, each in a file of its own.
Result<json::object, ApiError> parse_body(std::string_view body, const ParseContext&);
void parse_model(Fields& fields, GenerationRequest& out);
void parse_request_id(Fields& fields, GenerationRequest& out);
void parse_truncation(Fields& fields, GenerationRequest& out);
// What a field with one text or several holds: each as a text or as its ids.
std::vector<Prompt> parse_texts(Fields& fields, std::string_view key, int64_t most,
                                const ParseContext& context);
void parse_scheduling(Fields& fields, const ParseContext& context, GenerationRequest& out);
void parse_sampling(Fields& fields, const ParseContext& context, GenerationRequest& out);
void parse_stops(Fields& fields, std::string_view key, const ParseContext& context,
                 GenerationRequest& out);
void check_min_tokens(Fields& fields, const GenerationRequest& out);
void parse_generation(Fields& fields, const ParseContext& context, GenerationRequest& out);
void parse_constraint(Fields& fields, const ParseContext& context, GenerationRequest& out);
void parse_reasoning(Fields& fields, ReasoningWish& out);
void parse_effort(Fields& fields, std::string_view key, ReasoningWish& out);
void parse_chat_input(Fields& fields, const ParseContext& context, ChatInput& out);
void parse_answer_form(Fields& fields, const ParseContext& context, ChatRequest& out);
// Templates walk through a call's arguments; clients send them as JSON text. What is no JSON object
// stays text: a model wrote it, and its next turn must not fail for that.
void unpack_arguments(Fields& owner, json::value& arguments, const ParseContext& context,
                      ChatInput& out);
// What kind `tool_choice` is. False: the model is to see no tools.
bool check_tool_choice(Fields& fields);
// Names stand in JSON and in tags: nothing in them needs an escape.
void check_tool_name(Fields& owner);
// A tool's name, and what is at `schema`.
void check_function(Fields& function, std::string_view schema);
// Ids inside the vocabulary; anything else is an error of the field `key`.
std::optional<std::vector<int32_t>> parse_token_ids(Fields& fields, std::string_view key,
                                                    const json::array& ids,
                                                    const ParseContext& context);

}  // namespace quire::server::openai
