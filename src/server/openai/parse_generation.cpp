#include "server/openai/parse.h"

namespace quire::server::openai {
namespace {

constexpr size_t kMaxNameBytes = 1024;

// Parameters of the OpenAI API, vLLM and llama-server that would change the answer if we had them.
// To ignore one would be to answer another question than was asked.
void refuse_unsupported(Fields& fields) {
  for (const char* key :
       {"allowed_token_ids", "bad_words", "logprob_token_ids", "thinking_token_budget",
        "kv_transfer_params", "prompt_embeds", "logits_processors", "media_io_kwargs",
        "mm_processor_kwargs", "guided_decoding_backend", "guided_whitespace_pattern",
        "structural_tag", "grammar", "json_schema", "lora", "samplers"}) {
    fields.unsupported(key);
  }
  fields.unsupported_unless("use_beam_search", false);
  fields.unsupported_unless("length_penalty", 1.0);
  fields.unsupported_unless("early_stopping", false);
  fields.unsupported_unless("typical_p", 1.0);
  fields.unsupported_unless("mirostat", 0);
  fields.unsupported_unless("dry_multiplier", 0);
  fields.unsupported_unless("xtc_probability", 0);
}

void parse_stream(Fields& fields, GenerationRequest& out) {
  out.stream = fields.flag("stream", false);
  const json::object* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!out.stream) return fields.fail("stream_options", "can only be given when `stream` is true");
  Fields inner(*options, "stream_options.");
  out.include_usage = inner.flag("include_usage", false);
  out.continuous_usage = inner.flag("continuous_usage_stats", false);
  if (!inner.ok()) fields.fail(inner.error());
}

void parse_truncation(Fields& fields, GenerationRequest& out) {
  out.truncate_prompt_tokens = fields.integer("truncate_prompt_tokens", -1);
  if (out.truncate_prompt_tokens == 0)
    fields.fail("truncate_prompt_tokens", "must be -1 or above 0");
  const std::string side = fields.string("truncation_side").value_or("left");
  if (side != "left" && side != "right")
    fields.fail("truncation_side", "must be \"left\" or \"right\"");
  out.truncate_left = side == "left";
}

}  // namespace

Result<json::object, ApiError> parse_body(std::string_view body, const ParseContext& context) {
  JsonLimits limits;
  limits.max_bytes = std::max(limits.max_bytes, body.size());  // the HTTP side has the limit
  limits.max_depth = context.limits.max_json_depth;
  auto value = parse_json(body, limits);
  if (!value) return Err{ApiError{400, value.error(), ""}};
  if (!value->is_object()) return Err{ApiError{400, "The body must be a JSON object", ""}};
  return std::move(value->get_object());
}

void parse_generation(Fields& fields, const ParseContext& context, GenerationRequest& out) {
  out.model = fields.string("model", kMaxNameBytes).value_or("");
  out.request_id = fields.string("request_id", kMaxNameBytes).value_or("");
  fields.string("user");
  out.n = fields.integer("n", 1, context.limits.max_n).value_or(1);
  const auto best_of = fields.integer("best_of");
  if (best_of && *best_of != out.n) fields.fail("best_of", "is only supported when it equals `n`");
  parse_stream(fields, out);
  parse_sampling(fields, context, out);
  parse_constraint(fields, context, out);
  parse_truncation(fields, out);

  out.skip_special_tokens = fields.flag("skip_special_tokens", true);
  fields.flag("spaces_between_special_tokens", true);  // fast tokenizers add none either way
  out.echo = fields.flag("echo", false);
  out.return_token_ids = fields.flag("return_token_ids", false);
  out.return_tokens_as_token_ids = fields.flag("return_tokens_as_token_ids", false);
  const auto priority = fields.integer("priority", std::numeric_limits<int32_t>::min(),
                                       std::numeric_limits<int32_t>::max());
  out.priority = static_cast<int32_t>(priority.value_or(0));
  const auto salt = fields.string("cache_salt", kMaxNameBytes);
  if (salt && salt->empty()) fields.fail("cache_salt", "must not be empty");
  out.cache_salt = salt.value_or("");

  if (out.stream && out.sampling.prompt_logprobs >= 0)
    fields.fail("prompt_logprobs", "is not available when `stream` is true");
  refuse_unsupported(fields);
}

}  // namespace quire::server::openai
