#include "server/planner.h"

#include <algorithm>
#include <ctime>

namespace quire::server {
namespace {

constexpr int64_t kDefaultCompletionTokens = 16;  // OpenAI's

}  // namespace

Planner::Planner(const ModelText& text, int64_t max_model_len, std::string model_name)
    : text_(text),
      max_model_len_(max_model_len),
      model_name_(std::move(model_name)),
      prompts_(text, max_model_len) {}

Result<GenerationPlan, ApiError> Planner::plan(const openai::CompletionRequest& request,
                                               const std::string& id) const {
  std::vector<Prepared> prompts;
  for (const openai::Prompt& prompt : request.prompts) {
    auto ids = prompts_.build(prompt, request, "prompt");
    if (!ids) return Err{std::move(ids).error()};
    Prepared prepared{std::move(*ids), std::nullopt};
    if (request.echo) prepared.echo_text = echoed_text(prompt, prepared.ids, request);
    prompts.push_back(std::move(prepared));
  }
  Endpoint endpoint;
  endpoint.id = "cmpl-" + id;
  endpoint.default_max_tokens = text_.defaults.max_new_tokens.value_or(kDefaultCompletionTokens);
  return assemble(request, std::move(prompts), endpoint);
}

Result<GenerationPlan, ApiError> Planner::plan(const openai::ChatRequest& request,
                                               const std::string& id) const {
  auto rendered = prompts_.render(request.chat);
  if (!rendered) return Err{std::move(rendered).error()};
  auto ids = prompts_.build(std::move(*rendered), request, "messages");
  if (!ids) return Err{std::move(ids).error()};

  Endpoint endpoint;
  endpoint.is_chat = true;
  endpoint.id = "chatcmpl-" + id;
  endpoint.default_max_tokens = text_.defaults.max_new_tokens.value_or(max_model_len_);
  endpoint.max_tokens_param = "max_completion_tokens";
  const json::object& last = request.chat.messages.back().get_object();
  const std::string last_role(openai::as_view(last.at("role").get_string()));
  if (!request.chat.add_generation_prompt) endpoint.role = last_role;

  Prepared prepared{std::move(*ids), std::nullopt};
  // An echo makes sense only where the answer goes on with the last message.
  if (request.echo && last_role == endpoint.role)
    prepared.echo_text = std::string(openai::as_view(last.at("content").get_string()));
  std::vector<Prepared> prompts;
  prompts.push_back(std::move(prepared));
  return assemble(request, std::move(prompts), endpoint);
}

std::string Planner::echoed_text(const openai::Prompt& prompt, const std::vector<int32_t>& ids,
                                 const openai::CompletionRequest& request) const {
  const auto* text = std::get_if<std::string>(&prompt);
  if (text != nullptr && !request.truncate_prompt_tokens) return *text;
  auto decoded = text_.tokenizer->decode(ids, request.skip_special_tokens);
  return decoded ? std::move(*decoded) : std::string();
}

Result<int64_t, ApiError> Planner::max_tokens(const openai::GenerationRequest& request,
                                              int64_t prompt_tokens,
                                              const Endpoint& endpoint) const {
  const int64_t room = max_model_len_ - prompt_tokens;
  if (!request.max_tokens) return std::min(endpoint.default_max_tokens, room);
  if (*request.max_tokens <= room) return std::max<int64_t>(1, *request.max_tokens);
  return Err{ApiError{400,
                      "`" + std::string(endpoint.max_tokens_param) +
                          "` is too large: " + std::to_string(*request.max_tokens) +
                          " tokens and a prompt of " + std::to_string(prompt_tokens) +
                          " exceed this model's maximum context length of " +
                          std::to_string(max_model_len_) + " tokens",
                      endpoint.max_tokens_param}};
}

Result<std::optional<text::GrammarMatcher>, ApiError> Planner::compile(
    const openai::GenerationRequest& request) const {
  std::optional<text::GrammarMatcher> none;
  if (!request.constraint) return none;
  const openai::Constraint& constraint = *request.constraint;
  if (!text_.grammars) {
    return Err{ApiError{400, "This model has no end token, which structured output needs",
                        constraint.param}};
  }
  text::GrammarSpec spec;
  spec.kind = constraint.kind;
  spec.source = constraint.source;
  auto matcher = text_.grammars->compile(spec);
  if (!matcher) return Err{ApiError{400, matcher.error(), constraint.param}};
  // Some grammars compile and fail at their first step; here that is still the client's error.
  std::vector<uint32_t> mask((static_cast<size_t>(text_.tokenizer->vocab_size()) + 31) / 32);
  text::GrammarMatcher probe = matcher->clone();
  if (auto usable = probe.fill_mask(mask); !usable)
    return Err{ApiError{400, usable.error(), constraint.param}};
  return std::optional<text::GrammarMatcher>(std::move(*matcher));
}

SessionOptions Planner::session_options(const openai::GenerationRequest& request) const {
  SessionOptions options;
  options.stop = request.stop;
  options.include_stop_str_in_output = request.include_stop_str_in_output;
  options.skip_special_tokens = request.skip_special_tokens;
  options.min_tokens = request.sampling.min_tokens;
  options.stop_token_ids = request.sampling.stop_token_ids;
  if (!request.sampling.ignore_eos) options.eos_token_ids = text_.eos_token_ids;
  options.only_echo = request.max_tokens == 0;
  return options;
}

std::unique_ptr<openai::AnswerWriter> Planner::writer(const openai::GenerationRequest& request,
                                                      const Endpoint& endpoint) const {
  openai::AnswerInfo info;
  info.is_chat = endpoint.is_chat;
  info.id = endpoint.id;
  info.created = std::time(nullptr);
  info.model = model_name_;
  info.role = endpoint.role;
  info.logprobs = request.sampling.logprobs >= 0;
  info.prompt_logprobs = request.sampling.prompt_logprobs >= 0;
  info.token_ids = request.return_token_ids;
  return std::make_unique<openai::AnswerWriter>(std::move(info), text_.tokenizer,
                                                request.return_tokens_as_token_ids);
}

Result<GenerationPlan, ApiError> Planner::assemble(const openai::GenerationRequest& request,
                                                   std::vector<Prepared> prompts,
                                                   const Endpoint& endpoint) const {
  auto matcher = compile(request);
  if (!matcher) return Err{std::move(matcher).error()};
  GenerationPlan plan;
  plan.n = request.n;
  plan.stream = request.stream;
  plan.include_usage = request.include_usage;
  plan.continuous_usage = request.continuous_usage;
  plan.writer = writer(request, endpoint);
  for (Prepared& prompt : prompts) {
    auto limit = max_tokens(request, static_cast<int64_t>(prompt.ids.size()), endpoint);
    if (!limit) return Err{std::move(limit).error()};
    SessionOptions options = session_options(request);
    options.echo_text = std::move(prompt.echo_text);
    options.echo_tokens = !endpoint.is_chat;
    for (int64_t i = 0; i < request.n; ++i) {
      engine::Request one;
      one.prompt = prompt.ids;
      one.sampling = request.sampling;
      one.sampling.max_tokens = *limit;
      one.sampling.min_tokens = std::min(request.sampling.min_tokens, *limit);
      // The answers to one prompt differ, and are the same each time.
      if (one.sampling.seed) *one.sampling.seed += static_cast<uint64_t>(i);
      if (*matcher) one.grammar = std::make_unique<text::GrammarMatcher>((*matcher)->clone());
      one.cache_salt = request.cache_salt;
      one.priority = request.priority;
      plan.requests.push_back(std::move(one));
      plan.sessions.push_back(std::make_unique<Session>(text_.tokenizer, prompt.ids, options));
    }
  }
  return plan;
}

}  // namespace quire::server
