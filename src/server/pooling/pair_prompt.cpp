#include "server/pooling/pair_prompt.h"

#include <array>
#include <chrono>

#include "base/check.h"
#include "base/json.h"

namespace quire::server::pooling {
namespace {

// That of Qwen3-Reranker, as its model card has it. Jinja drops a template's last line end.
constexpr std::string_view kTemplate =
    "<|im_start|>system\n"
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. "
    "Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n"
    "<Instruct>: {{ instruction or \"Given a web search query, retrieve relevant passages that "
    "answer "
    "the query\" }}\n"
    "<Query>: {{ query }}\n"
    "<Document>: {{ document }}<|im_end|>\n"
    "<|im_start|>assistant\n"
    "<think>\n\n</think>\n\n\n";
constexpr std::array kTemplateTokens = {"<|im_start|>", "<|im_end|>"};

json::string_view view(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

PairPrompt::PairPrompt(const ModelText& text)
    : template_(text.rerank.chat_template), is_given_(template_ != nullptr) {
  if (!text.rerank.has_head) problem_ = "its checkpoint has no head, so it only gives embeddings";
  for (const std::string& token : text.rerank.tokens) {
    const auto ids = text.tokenizer->encode(token, false);
    if (ids && ids->size() == 1) {
      tokens_.push_back(ids->front());
    } else if (problem_.empty()) {
      problem_ = "\"" + token + "\" is no token of it (--rerank-tokens)";
    }
  }
  if (!template_) use_template_of_qwen3(text);
  WorkBudget budget(std::chrono::seconds(1));
  if (const auto empty = render("", "", "", budget)) fixed_bytes_ = empty->size();
}

void PairPrompt::use_template_of_qwen3(const ModelText& text) {
  for (const char* token : kTemplateTokens)
    if (problem_.empty() && !text.tokenizer->token_to_id(token))
      problem_ = std::string("it has no ") + token +
                 ", which the prompt of Qwen3-Reranker needs; " +
                 "--rerank-template gives another one";
  auto parsed = text::ChatTemplate::parse(kTemplate, {});
  QUIRE_CHECK(parsed.ok()) << parsed.error();
  template_ = std::move(*parsed);
}

Result<std::vector<int32_t>, ApiError> PairPrompt::tokens() const {
  if (problem_.empty()) return tokens_;
  return Err{ApiError{400, "This model cannot judge pairs of texts: " + problem_, ""}};
}

// The texts are there as variables, and as messages of these roles, which vLLM's templates read.
Result<std::string, ApiError> PairPrompt::render(std::string_view query, std::string_view document,
                                                 std::string_view instruction,
                                                 WorkBudget& budget) const {
  json::object variables{{"query", view(query)}, {"document", view(document)}};
  if (!instruction.empty()) variables["instruction"] = view(instruction);
  const json::array messages{json::object{{"role", "query"}, {"content", view(query)}},
                             json::object{{"role", "document"}, {"content", view(document)}}};
  const std::string messages_text = dump_json(messages), kwargs = dump_json(variables);
  text::ChatTemplateInput input;
  input.messages = messages_text;
  input.kwargs = kwargs;
  input.budget = &budget;
  auto rendered = template_->render(input);
  if (!rendered) return Err{ApiError{400, rendered.error(), ""}};
  return std::move(*rendered);
}

}  // namespace quire::server::pooling
