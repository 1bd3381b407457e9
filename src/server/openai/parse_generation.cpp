#include <algorithm>

#include "server/http/request_id.h"
#include "server/openai/parse.h"

namespace quire::server::openai {
namespace {

constexpr size_t kMaxNameBytes = 1024;

void parse_stream(Fields& fields, GenerationRequest& out) {
  out.stream = fields.flag("stream", false);
  const json::object* options = fields.object("stream_options");
  if (options == nullptr) return;
  if (!out.stream) return fields.fail("stream_options", "can only be given when `stream` is true");
  Fields inner(*options, "stream_options.");
  inner.only({"include_usage", "continuous_usage_stats", "include_obfuscation"});
  out.include_usage = inner.flag("include_usage", false);
  out.continuous_usage = inner.flag("continuous_usage_stats", false);
  inner.unsupported_unless("include_obfuscation", false);
  if (!inner.ok()) fields.fail(inner.error());
}

// Who sends none is not more urgent than who may say so.
void parse_priority(Fields& fields, const ParseContext& context, GenerationRequest& out) {
  const int32_t floor = context.limits.min_priority;
  const auto priority = fields.integer("priority", std::numeric_limits<int32_t>::min(),
                                       std::numeric_limits<int32_t>::max());
  if (!context.honours_priority) {
    if (priority.value_or(0) != 0)
      fields.fail("priority", "is only supported with --scheduling-policy priority",
                  "unsupported_parameter");
  } else if (priority && *priority < floor) {
    fields.fail("priority", "must be at least " + std::to_string(floor) + " (--min-priority)");
  } else {
    out.priority = static_cast<int32_t>(priority.value_or(std::max(0, floor)));
  }
}

}  // namespace

Result<json::object, ApiError> parse_body(std::string_view body, const ParseContext& context) {
  JsonLimits limits;
  limits.max_bytes = std::max(limits.max_bytes, body.size());  // the HTTP side has the limit
  limits.max_depth = context.limits.max_json_depth;
  limits.max_members = context.limits.max_json_members;
  limits.budget = context.budget;
  auto value = parse_json(body, limits);
  if (!value) return Err{ApiError{400, value.error(), ""}};
  if (!value->is_object()) return Err{ApiError{400, "The body must be a JSON object", ""}};
  return std::move(value->get_object());
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

void parse_request_id(Fields& fields, GenerationRequest& out) {
  out.request_id = fields.string("request_id", kMaxNameBytes).value_or("");
  if (!out.request_id.empty() && !http::is_usable_request_id(out.request_id))
    fields.fail("request_id",
                "must be at most 128 visible ASCII characters without quotes and backslashes");
}

void parse_model(Fields& fields, GenerationRequest& out) {
  out.model = fields.string("model", kMaxNameBytes).value_or("");
}

void parse_scheduling(Fields& fields, const ParseContext& context, GenerationRequest& out) {
  parse_priority(fields, context, out);
  const auto salt = fields.string("cache_salt", kMaxNameBytes);
  if (salt && salt->empty()) fields.fail("cache_salt", "must not be empty");
  out.cache_salt = salt.value_or("");
}

void parse_generation(Fields& fields, const ParseContext& context, GenerationRequest& out) {
  parse_model(fields, out);
  parse_request_id(fields, out);
  fields.string("user");
  out.n = fields.integer("n", 1, context.limits.max_n).value_or(1);
  const auto best_of = fields.integer("best_of");
  if (best_of && *best_of != out.n) fields.fail("best_of", "is only supported when it equals `n`");
  parse_stream(fields, out);
  parse_sampling(fields, context, out);
  parse_constraint(fields, context, out);
  out.needs_grammar = out.constraint.has_value();
  parse_truncation(fields, out);

  out.skip_special_tokens = fields.flag("skip_special_tokens", true);
  fields.flag("spaces_between_special_tokens", true);  // fast tokenizers add none either way
  out.echo = fields.flag("echo", false);
  out.return_token_ids = fields.flag("return_token_ids", false);
  out.return_tokens_as_token_ids = fields.flag("return_tokens_as_token_ids", false);
  parse_scheduling(fields, context, out);

  if (out.stream && out.sampling.prompt_logprobs >= 0)
    fields.fail("prompt_logprobs", "is not available when `stream` is true");
}

}  // namespace quire::server::openai
