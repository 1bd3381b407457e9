#pragma once
#include <optional>
#include <string>

#include "server/parsing_plan.h"
#include "text/grammar.h"

namespace quire::server {

// What an answer must look like: what the client asked for, after the model's thinking, and in the
// syntax of its dialect where it is to call tools.
struct AnswerGrammar {
  text::GrammarSpec::Kind kind = text::GrammarSpec::Kind::kJsonObject;
  std::string source, prelude;  // as in text::GrammarSpec
  std::string param;            // the request's field that it came from
};

// Of a request without a dialect. Nothing: any text will do.
std::optional<AnswerGrammar> plain_grammar(const openai::GenerationRequest& request);

// Of a chat. `choice`: the dialects of its template.
Result<std::optional<AnswerGrammar>, ApiError> chat_grammar(const openai::ChatRequest& request,
                                                            const dialects::DialectChoice& choice,
                                                            std::string_view prompt,
                                                            const text::Tokenizer& tokenizer);

}  // namespace quire::server
