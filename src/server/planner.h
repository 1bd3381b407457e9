#pragma once
#include <string>

#include "server/answer_grammar.h"
#include "server/generation.h"
#include "server/openai/fields.h"
#include "server/openai/request.h"
#include "server/parsing_plan.h"
#include "server/pooling/pair_prompt.h"
#include "server/pooling/parse.h"
#include "server/prompt_builder.h"
#include "server/request_size.h"

namespace quire::server {

// Turns parsed requests into what the engine and the sessions need. Thread-safe; called on worker
// threads, since it tokenises, renders templates and compiles grammars.
class Planner {
 public:
  Planner(const ModelText& text, const EngineClient& engine, const ServerOptions& options);

  // `id`: the request's, without a prefix. The plan holds what it charges to the account.
  Result<GenerationPlan, ApiError> plan(const openai::CompletionRequest& request,
                                        const std::string& id, const RequestMeans& means) const;
  Result<GenerationPlan, ApiError> plan(const openai::ChatRequest& request, const std::string& id,
                                        const RequestMeans& means) const;

  Result<GenerationPlan, ApiError> plan(const pooling::EmbeddingRequest& request,
                                        const std::string& id, const RequestMeans& means) const;
  Result<GenerationPlan, ApiError> plan(const pooling::ScoreRequest& request, const std::string& id,
                                        const RequestMeans& means) const;

  const PromptBuilder& prompts() const { return prompts_; }
  const ParsingPlan& parsing() const { return parsing_; }

  // Of the prompt about a pair of texts, beside those.
  size_t fixed_pair_bytes() const { return pair_prompt_.fixed_bytes(); }

 private:
  struct Prepared {
    std::vector<int32_t> ids;
    std::optional<std::string> echo_text;
  };
  // What a request's `model` stands for: the model, or an adapter of it.
  struct Served {
    std::string name, fingerprint;  // of the answers
    int32_t adapter = -1;           // engine::Request::adapter
  };
  const Served& served(const openai::GenerationRequest& request) const;
  std::string adapter_name(const openai::GenerationRequest& request) const;  // empty: none

  // What depends on the endpoint.
  struct Endpoint {
    bool is_chat = false;
    std::string id, request_id, role = "assistant";
    int64_t default_max_tokens = 0;
    std::shared_ptr<const ParsingOptions> parsing = {};
    std::optional<AnswerGrammar> grammar = {};
  };

  Result<GenerationPlan, ApiError> assemble(const openai::GenerationRequest& request,
                                            std::vector<Prepared> prompts, const Endpoint& endpoint,
                                            const RequestMeans& means) const;
  // Charges the account for prompts and answers, before they are made.
  Result<void, ApiError> charge(const openai::GenerationRequest& request,
                                const std::vector<Prepared>& prompts, const Endpoint& endpoint,
                                const RequestMeans& means, GenerationPlan& plan) const;
  Result<int64_t, ApiError> max_tokens(const openai::GenerationRequest& request,
                                       int64_t prompt_tokens, const Endpoint& endpoint) const;
  Result<std::optional<text::GrammarMatcher>, ApiError> compile(
      const std::optional<AnswerGrammar>& grammar, const RequestMeans& means) const;
  // The request's, with what its bad words ban.
  Result<engine::SamplingParams, ApiError> sampling(const openai::GenerationRequest& request,
                                                    const RequestMeans& means) const;
  SessionOptions session_options(const openai::GenerationRequest& request) const;
  std::unique_ptr<AnswerFormat> format(const openai::GenerationRequest& request,
                                       const Endpoint& endpoint, int64_t max_tokens) const;
  // Charges the text to `held` before it is made.
  Result<std::string, ApiError> echoed_text(const openai::Prompt& prompt,
                                            const std::vector<int32_t>& ids,
                                            const openai::CompletionRequest& request,
                                            const RequestMeans& means, http::Charge& held) const;

  size_t pooled_bytes(const engine::Pooling& pooling) const;
  Result<void, ApiError> add_pooled(const openai::GenerationRequest& request,
                                    std::vector<int32_t> ids, const engine::Pooling& pooling,
                                    const RequestMeans& means, GenerationPlan& plan) const;

  const ModelText& text_;
  const int64_t max_model_len_, vocab_size_, hidden_size_;
  std::vector<Served> served_;  // the model first
  PromptBuilder prompts_;
  ParsingPlan parsing_;
  pooling::PairPrompt pair_prompt_;
};

}  // namespace quire::server
