// Plans of requests whose answer is not text.
#include <ctime>

#include "server/planner.h"
#include "server/pooling/answer.h"

namespace quire::server {

using engine::Pooling;

// What the engine yields for one text, and the answer's share of it.
size_t Planner::pooled_bytes(const Pooling& pooling) const {
  const auto count =
      pooling.tokens.empty() ? static_cast<size_t>(hidden_size_) : pooling.tokens.size();
  return 2 * count * sizeof(float);
}

Result<GenerationPlan, ApiError> Planner::plan(const pooling::EmbeddingRequest& request,
                                               const std::string& id,
                                               const RequestMeans& means) const {
  GenerationPlan plan;
  const Pooling pooling{.kind = request.kind.value_or(text_.pooling.kind)};
  for (const openai::Prompt& prompt : request.prompts) {
    auto ids = prompts_.build(prompt, request, "input", means);
    if (!ids) return Err{std::move(ids).error()};
    if (auto added = add_pooled(request, std::move(*ids), pooling, means, plan); !added)
      return Err{std::move(added).error()};
  }
  const pooling::AnswerInfo info{"embd-" + id, served(request).name, std::time(nullptr)};
  const pooling::EmbeddingFormat::Shape shape{
      static_cast<size_t>(request.dimensions.value_or(hidden_size_)), request.normalises,
      request.as_base64};
  plan.format = std::make_unique<pooling::EmbeddingFormat>(info, shape);
  return plan;
}

Result<GenerationPlan, ApiError> Planner::plan(const pooling::ScoreRequest& request,
                                               const std::string& id,
                                               const RequestMeans& means) const {
  auto tokens = pair_prompt_.tokens();
  if (!tokens) return Err{std::move(tokens).error()};
  GenerationPlan plan;
  const Pooling pooling{.kind = Pooling::Kind::kTokenScores, .tokens = std::move(*tokens)};
  auto encoding = static_cast<const openai::GenerationRequest&>(request);
  encoding.add_special_tokens = pair_prompt_.adds_special_tokens();
  for (size_t i = 0; i < request.documents.size(); ++i) {
    const std::string& query = request.queries[request.queries.size() == 1 ? 0 : i];
    auto text = pair_prompt_.render(query, request.documents[i], request.instruction, means.budget);
    if (!text) return Err{std::move(text).error()};
    const char* param = request.is_rerank ? "documents" : "text_2";
    auto ids = prompts_.build(std::move(*text), encoding, param, means);
    if (!ids) return Err{std::move(ids).error()};
    if (auto added = add_pooled(request, std::move(*ids), pooling, means, plan); !added)
      return Err{std::move(added).error()};
  }
  const pooling::AnswerInfo info{(request.is_rerank ? "rerank-" : "score-") + id,
                                 served(request).name, std::time(nullptr)};
  if (request.is_rerank) {
    size_t kept = 0;  // of the documents, until the answer is sent
    if (request.returns_documents)
      for (const std::string& document : request.documents)
        kept += sizeof(document) + document.size();
    if (!plan.held_answers.try_add(kept)) return Err{does_not_fit(*means.account, kept)};
    plan.format = std::make_unique<pooling::RerankFormat>(
        info, request.returns_documents ? request.documents : std::vector<std::string>(),
        request.top_n);
  } else {
    plan.format = std::make_unique<pooling::ScoreFormat>(info);
  }
  return plan;
}

// Charges what the text takes until the answer is sent.
Result<void, ApiError> Planner::add_pooled(const openai::GenerationRequest& request,
                                           std::vector<int32_t> ids, const Pooling& pooling,
                                           const RequestMeans& means, GenerationPlan& plan) const {
  if (plan.requests.empty()) {
    plan.held_prompts = http::Charge(means.account, http::Held::kPrompts);
    plan.held_answers = http::Charge(means.account, http::Held::kAnswers);
    plan.adapter = adapter_name(request);
  }
  const size_t prompt_bytes = choice_bytes(request, ids.size(), 0);
  const size_t answer_bytes = pooled_bytes(pooling);
  if (!plan.held_prompts.try_add(prompt_bytes))
    return Err{does_not_fit(*means.account, prompt_bytes)};
  if (!plan.held_answers.try_add(answer_bytes))
    return Err{does_not_fit(*means.account, answer_bytes)};
  SessionOptions options;
  options.only_echo = true;
  plan.sessions.push_back(std::make_unique<Session>(text_.tokenizer, ids, options));
  engine::Request one;
  one.prompt = std::move(ids);
  one.sampling.max_tokens = 0;
  one.pooling = pooling;
  one.cache_salt = request.cache_salt;
  one.adapter = served(request).adapter;
  one.priority = request.priority;
  plan.requests.push_back(std::move(one));
  return {};
}

}  // namespace quire::server
