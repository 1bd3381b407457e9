#include "server/openai/parse.h"

namespace quire::server::openai {
namespace {

// {"logprobs": 3} of completions.
void parse_completion_logprobs(Fields& fields, const ParseContext& context,
                               CompletionRequest& out) {
  const auto logprobs = fields.integer("logprobs", 0, context.limits.max_logprobs);
  if (!logprobs) return;
  out.sampling.logprobs = static_cast<int32_t>(*logprobs);
  // An echoed prompt has log-probabilities like the rest of the text.
  if (out.echo && out.sampling.prompt_logprobs < 0)
    out.sampling.prompt_logprobs = out.sampling.logprobs;
}

// {"logprobs": true, "top_logprobs": 3} of chats.
void parse_chat_logprobs(Fields& fields, const ParseContext& context, ChatRequest& out) {
  const bool wanted = fields.flag("logprobs", false);
  const auto top = fields.integer("top_logprobs", 0, context.limits.max_logprobs).value_or(0);
  if (!wanted && top > 0) fields.fail("top_logprobs", "needs `logprobs` to be true");
  if (wanted) out.sampling.logprobs = static_cast<int32_t>(top);
}

// Chats have two names for it.
void parse_max_tokens(Fields& fields, ChatRequest& out) {
  const auto older_name = fields.integer("max_tokens", 1);
  out.max_tokens = fields.integer("max_completion_tokens", 1);
  if (!out.max_tokens) {
    out.max_tokens = older_name;
  } else if (older_name && *older_name != *out.max_tokens) {
    fields.fail("max_tokens", "and `max_completion_tokens` must not differ");
  } else {
    out.max_tokens_field = "max_completion_tokens";
  }
}

void parse_prompts(Fields& fields, const ParseContext& context, CompletionRequest& out) {
  const json::value* prompt = fields.find("prompt");
  const size_t count = prompt != nullptr && prompt->is_array() && !prompt->get_array().empty() &&
                               !prompt->get_array()[0].is_number()
                           ? prompt->get_array().size()
                           : 1;
  if (static_cast<int64_t>(count) > context.limits.max_generations / out.n) {
    return fields.too_many("prompt", "has " + std::to_string(count) +
                                         " entries; prompts times `n` must not exceed " +
                                         std::to_string(context.limits.max_generations));
  }
  out.prompts = parse_texts(fields, "prompt", context.limits.max_generations, context);
}

// Builds a T with `fill`, which reports errors to the fields.
template <class T, class Fill>
Result<T, ApiError> parse_object(std::string_view body, const ParseContext& context, Fill fill) {
  auto object = parse_body(body, context);
  if (!object) return Err{std::move(object).error()};
  Fields fields(*object);
  T out;
  fill(fields, out);
  if (!fields.ok()) return Err{fields.error()};
  return out;
}

}  // namespace

std::vector<Prompt> parse_texts(Fields& fields, std::string_view key, int64_t most,
                                const ParseContext& context) {
  const char* kinds = "must be a string, a list of strings, a list of token ids or a list of those";
  const auto one = [&](const json::value& value) -> std::vector<Prompt> {
    if (value.is_string()) return {std::string(as_view(value.get_string()))};
    if (!value.is_array()) return fields.mistyped(key, kinds), std::vector<Prompt>();
    auto ids = parse_token_ids(fields, key, value.get_array(), context);
    return ids ? std::vector<Prompt>{std::move(*ids)} : std::vector<Prompt>();
  };
  const json::value* given = fields.find(key);
  if (given == nullptr) return fields.missing(key), std::vector<Prompt>();
  if (!given->is_array()) return one(*given);
  const json::array& list = given->get_array();
  if (list.empty()) return fields.empty_list(key), std::vector<Prompt>();
  if (list[0].is_number()) return one(*given);
  if (static_cast<int64_t>(list.size()) > most)
    fields.too_many(key, "has " + std::to_string(list.size()) + " entries; at most " +
                             std::to_string(most) + " are allowed");
  std::vector<Prompt> texts;
  for (size_t i = 0; i < list.size() && fields.ok(); ++i)
    for (Prompt& text : one(list[i])) texts.push_back(std::move(text));
  return texts;
}

void check_min_tokens(Fields& fields, const GenerationRequest& out) {
  if (out.max_tokens && out.sampling.min_tokens > *out.max_tokens)
    fields.fail("min_tokens", "must not be above `" + std::string(out.max_tokens_field) + "`");
}

Result<CompletionRequest, ApiError> parse_completion(std::string_view body,
                                                     const ParseContext& context) {
  return parse_object<CompletionRequest>(body, context, [&](Fields& fields, auto& out) {
    out.unknown_fields = check_fields(fields, kCompletion);
    parse_generation(fields, context, out);
    if (!fields.ok()) return;  // n is used below
    parse_completion_logprobs(fields, context, out);
    parse_prompts(fields, context, out);
    out.max_tokens = fields.integer("max_tokens", out.echo ? 0 : 1);
    check_min_tokens(fields, out);
    out.add_special_tokens = fields.flag("add_special_tokens", true);
  });
}

Result<ChatRequest, ApiError> parse_chat(std::string_view body, const ParseContext& context) {
  return parse_object<ChatRequest>(body, context, [&](Fields& fields, auto& out) {
    out.unknown_fields = check_fields(fields, kChat);
    parse_generation(fields, context, out);
    parse_chat_logprobs(fields, context, out);
    parse_chat_input(fields, context, out.chat);
    parse_answer_form(fields, context, out);
    parse_max_tokens(fields, out);
    check_min_tokens(fields, out);
    out.add_special_tokens = fields.flag("add_special_tokens", false);
  });
}

Result<TokenizeRequest, ApiError> parse_tokenize(std::string_view body,
                                                 const ParseContext& context) {
  return parse_object<TokenizeRequest>(body, context, [&](Fields& fields, auto& out) {
    out.unused_fields = check_fields(fields, kTokenize);
    out.model = fields.string("model").value_or("");
    out.return_token_strs = fields.flag("return_token_strs", false);
    const bool is_chat = fields.has("messages");
    out.add_special_tokens = fields.flag("add_special_tokens", !is_chat);
    if (is_chat) {
      ChatInput input;
      parse_chat_input(fields, context, input);
      out.input = std::move(input);
      if (fields.has("prompt")) fields.fail("prompt", "and `messages` cannot both be given");
    } else if (auto prompt = fields.string("prompt")) {
      out.input = std::move(*prompt);
    } else {
      fields.fail("prompt", "or `messages` is required", "missing_required_parameter");
    }
  });
}

Result<DetokenizeRequest, ApiError> parse_detokenize(std::string_view body,
                                                     const ParseContext& context) {
  return parse_object<DetokenizeRequest>(body, context, [&](Fields& fields, auto& out) {
    out.unused_fields = check_fields(fields, kDetokenize);
    out.model = fields.string("model").value_or("");
    const json::array* tokens = fields.array("tokens", std::numeric_limits<int64_t>::max());
    if (tokens == nullptr) return fields.missing("tokens");
    if (auto ids = parse_token_ids(fields, "tokens", *tokens, context))
      out.tokens = std::move(*ids);
  });
}

}  // namespace quire::server::openai
