#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/work_budget.h"
#include "server/errors.h"
#include "server/http/ledger.h"
#include "server/openai/request.h"

namespace quire::server {

// What the work on one request may use up.
struct RequestMeans {
  WorkBudget& budget;
  std::shared_ptr<http::Account> account;
};

// At most how many bytes the parsed form of a JSON text takes, the text itself not counted.
size_t document_bytes(std::string_view body);
// What a chat takes beside that until its prompt is there: what the template is given, its text,
// and the renderer's values. Measured with long messages, tools and template_kwargs.
size_t rendering_bytes(std::string_view body);

// What one choice (of the `n` to each prompt) keeps of its request: engine and session have copies
// of the prompt's ids, and of the request's lists. All choices share one text::StopSet.
size_t choice_bytes(const openai::GenerationRequest& request, size_t prompt_tokens,
                    size_t echo_bytes);

// What all choices share of `bad_words`, while their tokens are looked for and later.
size_t bad_words_bytes(const openai::GenerationRequest& request, int64_t vocab_size);
// What the answer repeats of the request.
size_t echo_bytes(const openai::GenerationRequest& request);

// The answer to one prompt that is held until it is complete, or longer.
struct AnswerShape {
  int64_t prompts = 1;  // of the request, all counted as long as this one
  int64_t prompt_tokens = 0, max_tokens = 0;
  bool parsed = false;  // into content, reasoning and calls
};
// At most how many bytes the answers' tokens, texts and log-probabilities take, and what a parser
// keeps of them until it knows what they are.
size_t answer_bytes(const openai::GenerationRequest& request, const AnswerShape& shape);
// Names what the size is the product of.
ApiError answer_too_large(const openai::GenerationRequest& request, const AnswerShape& shape,
                          size_t limit);

ApiError choices_too_large(size_t bytes, size_t limit);

// The answer to a request for which `account` has no room for so many more bytes: it can come again
// (503), or it can never fit beside what it holds already (400).
ApiError does_not_fit(const http::Account& account, size_t more);

}  // namespace quire::server
