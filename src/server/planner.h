#pragma once
#include <string>

#include "server/generation.h"
#include "server/openai/fields.h"
#include "server/openai/request.h"
#include "server/prompt_builder.h"

namespace quire::server {

// Turns parsed requests into what the engine and the sessions need. Thread-safe; called on worker
// threads, since it tokenises, renders templates and compiles grammars.
class Planner {
 public:
  Planner(const ModelText& text, int64_t max_model_len, std::string model_name);

  // `id`: the request's, without a prefix.
  Result<GenerationPlan, ApiError> plan(const openai::CompletionRequest& request,
                                        const std::string& id) const;
  Result<GenerationPlan, ApiError> plan(const openai::ChatRequest& request,
                                        const std::string& id) const;

  const PromptBuilder& prompts() const { return prompts_; }

 private:
  struct Prepared {
    std::vector<int32_t> ids;
    std::optional<std::string> echo_text;
  };
  // What depends on the endpoint.
  struct Endpoint {
    bool is_chat = false;
    std::string id, role = "assistant";
    int64_t default_max_tokens = 0;
    const char* max_tokens_param = "max_tokens";
  };

  Result<GenerationPlan, ApiError> assemble(const openai::GenerationRequest& request,
                                            std::vector<Prepared> prompts,
                                            const Endpoint& endpoint) const;
  Result<int64_t, ApiError> max_tokens(const openai::GenerationRequest& request,
                                       int64_t prompt_tokens, const Endpoint& endpoint) const;
  Result<std::optional<text::GrammarMatcher>, ApiError> compile(
      const openai::GenerationRequest& request) const;
  SessionOptions session_options(const openai::GenerationRequest& request) const;
  std::unique_ptr<openai::AnswerWriter> writer(const openai::GenerationRequest& request,
                                               const Endpoint& endpoint) const;
  std::string echoed_text(const openai::Prompt& prompt, const std::vector<int32_t>& ids,
                          const openai::CompletionRequest& request) const;

  const ModelText& text_;
  const int64_t max_model_len_;
  const std::string model_name_;
  PromptBuilder prompts_;
};

}  // namespace quire::server
