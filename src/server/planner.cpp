#include "server/planner.h"

#include <algorithm>
#include <ctime>

#include "server/anthropic/answer.h"
#include "server/openai/answer.h"
#include "server/responses/answer.h"

namespace quire::server {
namespace {

constexpr int64_t kDefaultCompletionTokens = 16;  // OpenAI's

// A grammar's part of the account, for as long as the engine keeps the grammar.
class ChargedMemory final : public text::GrammarMemory {
 public:
  explicit ChargedMemory(std::shared_ptr<http::Account> account)
      : charge_(std::move(account), http::Held::kGrammars) {}
  bool try_add(size_t bytes) override { return charge_.try_add(bytes); }

 private:
  http::Charge charge_;
};

ApiError grammar_error(const std::string& error, const std::string& param) {
  if (error == text::kNoGrammarMemory) return {503, error, param};
  return {400, error, param};
}

ApiError grammar_too_large(size_t bytes, size_t limit, const std::string& param) {
  return {400,
          "Compiling the grammar may take " + std::to_string(bytes) + " bytes, more than the " +
              std::to_string(limit) + " that one client may have held",
          param};
}

}  // namespace

Planner::Planner(const ModelText& text, const EngineClient& engine, const ServerOptions& options)
    : text_(text),
      max_model_len_(engine.max_model_len()),
      vocab_size_(engine.vocab_size()),
      hidden_size_(engine.hidden_size()),
      served_{{options.served_model_names.front(), options.fingerprint}},
      prompts_(text, max_model_len_),
      parsing_(text),
      pair_prompt_(text) {
  for (const ServedAdapter& adapter : options.adapters)
    served_.push_back(
        {adapter.name, adapter.fingerprint, static_cast<int32_t>(served_.size()) - 1});
}

// The model has several names, and requests may leave it out.
const Planner::Served& Planner::served(const openai::GenerationRequest& request) const {
  const auto adapter =
      std::ranges::find(served_.begin() + 1, served_.end(), request.model, &Served::name);
  return adapter == served_.end() ? served_.front() : *adapter;
}

std::string Planner::adapter_name(const openai::GenerationRequest& request) const {
  const Served& model = served(request);
  return model.adapter < 0 ? std::string() : model.name;
}

Result<GenerationPlan, ApiError> Planner::plan(const openai::CompletionRequest& request,
                                               const std::string& id,
                                               const RequestMeans& means) const {
  std::vector<Prepared> prompts;
  http::Charge held(means.account, http::Held::kPrompts);
  for (const openai::Prompt& prompt : request.prompts) {
    auto ids = prompts_.build(prompt, request, "prompt", means);
    if (!ids) return Err{std::move(ids).error()};
    const size_t bytes = ids->size() * sizeof(int32_t);
    if (!held.try_add(bytes)) return Err{does_not_fit(*means.account, bytes)};
    Prepared prepared{std::move(*ids), std::nullopt};
    if (request.echo) {
      auto text = echoed_text(prompt, prepared.ids, request, means, held);
      if (!text) return Err{std::move(text).error()};
      prepared.echo_text = std::move(*text);
    }
    prompts.push_back(std::move(prepared));
  }
  Endpoint endpoint;
  endpoint.id = "cmpl-" + id;
  endpoint.grammar = plain_grammar(request);
  endpoint.default_max_tokens = text_.defaults.max_new_tokens.value_or(kDefaultCompletionTokens);
  return assemble(request, std::move(prompts), endpoint, means);
}

Result<GenerationPlan, ApiError> Planner::plan(const openai::ChatRequest& request,
                                               const std::string& id,
                                               const RequestMeans& means) const {
  auto rendered = prompts_.render(request.chat, means.budget);
  if (!rendered) return Err{std::move(rendered).error()};
  Endpoint endpoint;
  endpoint.parsing = parsing_.options(request, *rendered);
  auto grammar =
      chat_grammar(request, parsing_.choice_for(request.chat), *rendered, *text_.tokenizer);
  if (!grammar) return Err{std::move(grammar).error()};
  endpoint.grammar = std::move(*grammar);
  auto ids = prompts_.build(std::move(*rendered), request, request.chat.field, means);
  if (!ids) return Err{std::move(ids).error()};

  endpoint.is_chat = true;
  const bool is_message = request.api == openai::GenerationRequest::Api::kMessages;
  endpoint.id = (is_message ? "msg_" : "chatcmpl-") + id;
  endpoint.request_id = id;
  endpoint.default_max_tokens = text_.defaults.max_new_tokens.value_or(max_model_len_);
  const json::object& last = request.chat.messages.back().get_object();
  const std::string last_role(openai::as_view(last.at("role").get_string()));
  if (!request.chat.add_generation_prompt) endpoint.role = last_role;

  Prepared prepared{std::move(*ids), std::nullopt};
  // An echo makes sense only where the answer goes on with the last message.
  if (request.echo && last_role == endpoint.role)
    prepared.echo_text = std::string(openai::as_view(last.at("content").get_string()));
  std::vector<Prepared> prompts;
  prompts.push_back(std::move(prepared));
  return assemble(request, std::move(prompts), endpoint, means);
}

Result<std::string, ApiError> Planner::echoed_text(const openai::Prompt& prompt,
                                                   const std::vector<int32_t>& ids,
                                                   const openai::CompletionRequest& request,
                                                   const RequestMeans& means,
                                                   http::Charge& held) const {
  const auto* text = std::get_if<std::string>(&prompt);
  const bool is_sent = text != nullptr && !request.truncate_prompt_tokens;
  const size_t bytes = is_sent ? text->size() : text_.tokenizer->decoded_bytes(ids);
  if (!held.try_add(bytes)) return Err{does_not_fit(*means.account, bytes)};
  if (is_sent) return *text;
  return prompts_.decode(ids, {request.skip_special_tokens, &means.budget}, "prompt");
}

Result<int64_t, ApiError> Planner::max_tokens(const openai::GenerationRequest& request,
                                              int64_t prompt_tokens,
                                              const Endpoint& endpoint) const {
  const int64_t room = max_model_len_ - prompt_tokens;
  if (!request.max_tokens) return std::min(endpoint.default_max_tokens, room);
  if (*request.max_tokens <= room) return std::max<int64_t>(1, *request.max_tokens);
  if (request.cuts_max_tokens) return room;
  return Err{ApiError{400,
                      "`" + std::string(request.max_tokens_field) +
                          "` is too large: " + std::to_string(*request.max_tokens) +
                          " tokens and a prompt of " + std::to_string(prompt_tokens) +
                          " exceed this model's maximum context length of " +
                          std::to_string(max_model_len_) + " tokens",
                      request.max_tokens_field, kContextLengthExceeded}};
}

Result<std::optional<text::GrammarMatcher>, ApiError> Planner::compile(
    const std::optional<AnswerGrammar>& grammar, const RequestMeans& means) const {
  std::optional<text::GrammarMatcher> none;
  if (!grammar) return none;
  const std::string& param = grammar->param;
  if (!text_.grammars)
    return Err{ApiError{400, "This model has no end token, which grammars need", param}};
  text::GrammarSpec spec;
  spec.kind = grammar->kind;
  spec.source = grammar->source;
  spec.name = param;
  spec.prelude = grammar->prelude;
  spec.budget = &means.budget;
  const size_t bytes = text::GrammarFactory::bytes_to_compile(spec);
  if (bytes > means.account->limit())
    return Err{grammar_too_large(bytes, means.account->limit(), param)};
  auto matcher = text_.grammars->compile(spec, std::make_unique<ChargedMemory>(means.account));
  if (!matcher) return Err{grammar_error(matcher.error(), param)};
  // Some grammars compile and fail at their first step. The matcher keeps this mask: the engine's
  // first one costs nothing.
  std::vector<uint32_t> mask((static_cast<size_t>(text_.tokenizer->vocab_size()) + 31) / 32);
  if (auto usable = matcher->fill_mask(mask); !usable)
    return Err{grammar_error(usable.error(), param)};
  return std::optional<text::GrammarMatcher>(std::move(*matcher));
}

// As in vLLM: the tokens of each word at the beginning of a text and behind a space. A single token
// is banned everywhere, the last of several after the others.
Result<engine::SamplingParams, ApiError> Planner::sampling(const openai::GenerationRequest& request,
                                                           const RequestMeans& means) const {
  engine::SamplingParams out = request.sampling;
  if (request.bad_words.empty()) return out;
  std::vector<std::vector<int32_t>> sequences;
  const auto allowed = out.allowed_tokens
                           ? std::make_shared<std::vector<uint32_t>>(*out.allowed_tokens)
                           : std::make_shared<std::vector<uint32_t>>(
                                 static_cast<size_t>(vocab_size_ + 31) / 32, ~0u);
  if (!out.allowed_tokens && vocab_size_ % 32 != 0)
    allowed->back() = (uint32_t{1} << vocab_size_ % 32) - 1;  // no token is beyond them
  for (const std::string& word : request.bad_words) {
    for (const std::string& text : {word, " " + word}) {
      text::EncodeOptions options;
      options.add_special_tokens = false;
      auto ids = prompts_.encode(text, options, "bad_words", means);
      if (!ids) return Err{std::move(ids).error()};
      if (ids->size() > 1) {
        sequences.push_back(std::move(*ids));
      } else if (!ids->empty() && ids->front() < vocab_size_) {
        (*allowed)[ids->front() / 32] &= ~(uint32_t{1} << ids->front() % 32);
        out.allowed_tokens = allowed;
      }
    }
  }
  std::ranges::sort(sequences);
  sequences.erase(std::unique(sequences.begin(), sequences.end()), sequences.end());
  if (!sequences.empty()) out.bad_words = std::make_shared<const engine::BadWords>(sequences);
  return out;
}

SessionOptions Planner::session_options(const openai::GenerationRequest& request) const {
  SessionOptions options;
  if (!request.stop.empty()) options.stop = std::make_shared<text::StopSet>(request.stop);
  options.include_stop_str_in_output = request.include_stop_str_in_output;
  options.skip_special_tokens = request.skip_special_tokens;
  options.min_tokens = request.sampling.min_tokens;
  options.stop_token_ids = request.sampling.stop_token_ids;
  if (!request.sampling.ignore_eos) options.eos_token_ids = text_.eos_token_ids;
  options.only_echo = request.max_tokens == 0;
  return options;
}

std::unique_ptr<AnswerFormat> Planner::format(const openai::GenerationRequest& request,
                                              const Endpoint& endpoint, int64_t max_tokens) const {
  const Served& model = served(request);
  if (request.api == openai::GenerationRequest::Api::kMessages) {
    return std::make_unique<anthropic::MessageFormat>(
        anthropic::MessageInfo{.id = endpoint.id,
                               .request_id = endpoint.request_id,
                               .model = model.name,
                               .cut_by_context = request.max_tokens.value_or(0) > max_tokens});
  }
  if (request.api == openai::GenerationRequest::Api::kResponses) {
    return std::make_unique<responses::ResponseFormat>(
        responses::ResponseInfo{.id = endpoint.request_id,
                                .model = model.name,
                                .created = std::time(nullptr),
                                .echo = request.responses,
                                .fingerprint = model.fingerprint});
  }
  openai::AnswerInfo info;
  info.is_chat = endpoint.is_chat;
  info.id = endpoint.id;
  info.created = std::time(nullptr);
  info.model = model.name;
  info.fingerprint = model.fingerprint;
  info.role = endpoint.role;
  info.logprobs = request.sampling.logprobs >= 0;
  info.prompt_logprobs = request.sampling.prompt_logprobs >= 0;
  info.token_ids = request.return_token_ids;
  info.usage_at_end = request.include_usage;
  info.usage_in_chunks = request.continuous_usage;
  return std::make_unique<openai::AnswerWriter>(std::move(info), text_.tokenizer,
                                                request.return_tokens_as_token_ids);
}

Result<void, ApiError> Planner::charge(const openai::GenerationRequest& request,
                                       const std::vector<Prepared>& prompts,
                                       const Endpoint& endpoint, const RequestMeans& means,
                                       GenerationPlan& plan) const {
  size_t prompt_bytes = 0, bytes_of_answers = 0;
  AnswerShape largest;
  largest.parsed = endpoint.parsing != nullptr;
  for (const Prepared& prompt : prompts) {
    const auto tokens = static_cast<int64_t>(prompt.ids.size());
    auto limit = max_tokens(request, tokens, endpoint);
    if (!limit) return Err{std::move(limit).error()};
    const size_t echoed = prompt.echo_text ? prompt.echo_text->size() : 0;
    prompt_bytes += choice_bytes(request, prompt.ids.size(), echoed);
    const AnswerShape shape{1, tokens, *limit, endpoint.parsing != nullptr};
    bytes_of_answers += answer_bytes(request, shape);
    largest.prompt_tokens = std::max(largest.prompt_tokens, tokens);
    largest.max_tokens = std::max(largest.max_tokens, *limit);
  }
  prompt_bytes *= static_cast<size_t>(request.n);
  prompt_bytes += text::StopSet::bytes(request.stop);
  prompt_bytes += bad_words_bytes(request, vocab_size_);
  prompt_bytes += echo_bytes(request);
  if (endpoint.parsing) prompt_bytes += endpoint.parsing->tools.bytes();
  largest.prompts = static_cast<int64_t>(prompts.size());
  if (bytes_of_answers > means.account->limit())
    return Err{answer_too_large(request, largest, means.account->limit())};
  if (prompt_bytes > means.account->limit())
    return Err{choices_too_large(prompt_bytes, means.account->limit())};
  plan.held_prompts = http::Charge(means.account, http::Held::kPrompts);
  plan.held_answers = http::Charge(means.account, http::Held::kAnswers);
  if (!plan.held_prompts.try_add(prompt_bytes))
    return Err{does_not_fit(*means.account, prompt_bytes)};
  if (!plan.held_answers.try_add(bytes_of_answers))
    return Err{does_not_fit(*means.account, bytes_of_answers)};
  return {};
}

Result<GenerationPlan, ApiError> Planner::assemble(const openai::GenerationRequest& request,
                                                   std::vector<Prepared> prompts,
                                                   const Endpoint& endpoint,
                                                   const RequestMeans& means) const {
  GenerationPlan plan;
  if (auto fits = charge(request, prompts, endpoint, means, plan); !fits)
    return Err{std::move(fits).error()};
  auto matcher = compile(endpoint.grammar, means);
  if (!matcher) return Err{std::move(matcher).error()};
  const auto sampling = this->sampling(request, means);
  if (!sampling) return Err{sampling.error()};
  plan.n = request.n;
  plan.adapter = adapter_name(request);
  if (endpoint.grammar) plan.constraint_param = endpoint.grammar->param;
  plan.stream = request.stream;
  const SessionOptions common = session_options(request);  // all share its stop strings
  for (Prepared& prompt : prompts) {
    auto limit = max_tokens(request, static_cast<int64_t>(prompt.ids.size()), endpoint);
    if (!limit) return Err{std::move(limit).error()};
    if (request.sampling.min_tokens > *limit) {
      return Err{ApiError{400,
                          "`min_tokens` is above the answer's limit of " + std::to_string(*limit) +
                              " tokens; set `" + request.max_tokens_field + "`",
                          "min_tokens"}};
    }
    if (!plan.format) plan.format = format(request, endpoint, *limit);
    SessionOptions options = common;
    options.echo_text = std::move(prompt.echo_text);
    options.echo_tokens = !endpoint.is_chat;
    options.parsing = endpoint.parsing;
    for (int64_t i = 0; i < request.n; ++i) {
      engine::Request one;
      one.prompt = prompt.ids;
      one.sampling = *sampling;
      one.sampling.max_tokens = *limit;
      // The answers to one prompt differ, and are the same each time.
      if (one.sampling.seed) *one.sampling.seed += static_cast<uint64_t>(i);
      if (*matcher) one.grammar = std::make_unique<text::GrammarMatcher>((*matcher)->clone());
      one.cache_salt = request.cache_salt;
      one.adapter = served(request).adapter;
      one.priority = request.priority;
      plan.requests.push_back(std::move(one));
      plan.sessions.push_back(std::make_unique<Session>(text_.tokenizer, prompt.ids, options));
    }
  }
  return plan;
}

}  // namespace quire::server
