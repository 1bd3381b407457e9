#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/work_budget.h"
#include "server/errors.h"
#include "server/options.h"

namespace quire::server::pooling {

// How a reranker is asked whether a document answers a query: a prompt, and the two tokens that say
// no and yes. Thread-safe.
class PairPrompt {
 public:
  // `text` must outlive it.
  explicit PairPrompt(const ModelText& text);

  // Whether the tokenizer's special tokens (a first one, a last one) go around the prompt. The one
  // of Qwen3-Reranker is complete, and its answer follows its last token. Templates that are given
  // are written for vLLM, which adds them.
  bool adds_special_tokens() const { return is_given_; }
  // The tokens that say no and yes; an error if this model has no way to judge pairs.
  Result<std::vector<int32_t>, ApiError> tokens() const;
  // Of the prompt beside a pair's own texts.
  size_t fixed_bytes() const { return fixed_bytes_; }
  Result<std::string, ApiError> render(std::string_view query, std::string_view document,
                                       std::string_view instruction, WorkBudget& budget) const;

 private:
  void use_template_of_qwen3(const ModelText& text);

  std::shared_ptr<const text::ChatTemplate> template_;
  std::vector<int32_t> tokens_;
  std::string problem_;    // empty: there is none
  bool is_given_ = false;  // the template, with --rerank-template
  size_t fixed_bytes_ = 0;
};

}  // namespace quire::server::pooling
