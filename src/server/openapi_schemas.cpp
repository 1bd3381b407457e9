// What fields look like, for those who read the OpenAPI document.
#include <algorithm>

#include "server/openapi.h"

namespace quire::server {
namespace {

struct FieldSchema {
  std::string_view name, schema;
};

constexpr std::string_view kText = R"({"type":"string"})";
constexpr std::string_view kFlag = R"({"type":"boolean"})";
constexpr std::string_view kObject = R"({"type":"object"})";
constexpr std::string_view kAny = "{}";
constexpr std::string_view kIds = R"({"type":"array","items":{"type":"integer","minimum":0}})";
constexpr std::string_view kObjects = R"({"type":"array","items":{"type":"object"}})";
constexpr std::string_view kPositive = R"({"type":"integer","minimum":1})";
constexpr std::string_view kCount = R"({"type":"integer","minimum":0})";
constexpr std::string_view kPenalty = R"({"type":"number","minimum":-2,"maximum":2})";
constexpr std::string_view kTexts =
    R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]})";
constexpr std::string_view kTextsOrIds =
    R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"string"},"minItems":1},)"
    R"({"type":"array","items":{"type":"integer","minimum":0},"minItems":1},)"
    R"({"type":"array","items":{"type":"array","items":{"type":"integer","minimum":0}},"minItems":1}]})";
constexpr std::string_view kMessages =
    R"({"type":"array","minItems":1,"items":{"type":"object","properties":{"role":{"type":"string"},)"
    R"("content":{"anyOf":[{"type":"string"},{"type":"array"},{"type":"null"}]}},"required":["role"]}})";

constexpr FieldSchema kSchemas[] = {
    {"model", kText},
    {"prompt", kTextsOrIds},
    {"messages", kMessages},
    {"tokens", kIds},
    {"return_token_strs", kFlag},
    {"add_special_tokens", kFlag},
    {"tools", kObjects},
    {"tool_choice", kAny},
    {"documents", kAny},
    {"chat_template", kText},
    {"chat_template_kwargs", kObject},
    {"add_generation_prompt", kFlag},
    {"continue_final_message", kFlag},
    {"reasoning_effort", kText},
    {"reasoning", kAny},
    {"enable_thinking", kFlag},
    {"think", kAny},
    {"thinking", kAny},
    {"max_completion_tokens", kPositive},
    {"parallel_tool_calls", kFlag},
    {"parse_tool_calls", kFlag},
    {"include_reasoning", kFlag},
    {"separate_reasoning", kFlag},
    {"reasoning_format", kText},
    {"thinking_token_budget", R"({"type":"integer"})"},
    {"thinking_budget", R"({"type":"integer"})"},
    {"thinking_budget_tokens", R"({"type":"integer"})"},
    {"reasoning_budget", R"({"type":"integer"})"},
    {"top_logprobs", kCount},
    {"request_id", kText},
    {"n", kPositive},
    {"best_of", R"({"type":"integer"})"},
    {"max_tokens", kCount},
    {"min_tokens", kCount},
    {"logprobs", R"({"anyOf":[{"type":"boolean"},{"type":"integer","minimum":0}]})"},
    {"prompt_logprobs", kCount},
    {"echo", kFlag},
    {"stream", kFlag},
    {"stream_options", kObject},
    {"temperature", R"({"type":"number","minimum":0,"maximum":100})"},
    // Above 0 as a float, too.
    {"top_p", R"({"type":"number","minimum":1.2e-38,"maximum":1})"},
    {"top_k", R"({"type":"integer","minimum":-1})"},
    {"min_p", R"({"type":"number","minimum":0,"maximum":1})"},
    {"presence_penalty", kPenalty},
    {"frequency_penalty", kPenalty},
    {"repetition_penalty", R"({"type":"number","minimum":1.2e-38,"maximum":100})"},
    {"logit_bias", R"({"type":"object","additionalProperties":{"type":"number"}})"},
    {"seed", R"({"type":"integer"})"},
    {"stop", kTexts},
    {"stop_token_ids", kIds},
    {"allowed_token_ids",
     R"({"type":"array","items":{"type":"integer","minimum":0},"minItems":1})"},
    {"bad_words", R"({"type":"array","items":{"type":"string"}})"},
    {"include_stop_str_in_output", kFlag},
    {"ignore_eos", kFlag},
    {"skip_special_tokens", kFlag},
    {"spaces_between_special_tokens", kFlag},
    {"response_format", kObject},
    {"structured_outputs", kObject},
    {"guided_json", kAny},
    {"guided_regex", kText},
    {"guided_grammar", kText},
    {"guided_choice", R"({"type":"array","items":{"type":"string"},"minItems":1})"},
    {"grammar", kText},
    {"truncate_prompt_tokens", R"({"anyOf":[{"const":-1},{"type":"integer","minimum":1}]})"},
    {"truncation_side", R"({"enum":["left","right"]})"},
    {"return_token_ids", kFlag},
    {"return_tokens_as_token_ids", kFlag},
    {"priority", R"({"type":"integer"})"},
    {"cache_salt", R"({"type":"string","minLength":1})"},
    {"encoding_format", R"({"enum":["float","base64"]})"},
    {"dimensions", kPositive},
    {"pooling", R"({"enum":["last","mean"]})"},
    {"normalize", kFlag},
    {"query", kText},
    {"top_n", kCount},
    {"return_documents", kFlag},
    {"text_1", kTexts},
    {"text_2", kTexts},
    {"queries", kTexts},
    {"instruction", kText},
    {"system", kAny},
    {"stop_sequences", R"({"type":"array","items":{"type":"string"}})"},
    {"output_config", kObject},
    {"output_format", kObject},
    {"input", kAny},
    {"instructions", kText},
    {"max_output_tokens", kPositive},
    {"text", kObject},
    {"include", R"({"type":"array","items":{"type":"string"}})"},
    {"metadata", kObject},
    {"store", kFlag},
};

}  // namespace

std::string_view field_schema(std::string_view name) {
  const auto* const found = std::ranges::find(kSchemas, name, &FieldSchema::name);
  return found == std::end(kSchemas) ? std::string_view() : found->schema;
}

}  // namespace quire::server
