#pragma once
#include <memory>
#include <string_view>

#include "server/answer_parser.h"
#include "server/openai/request.h"
#include "server/options.h"

namespace quire::server {

// How the answers to chats are parsed: the dialect that the chat template shows to the model, or
// that the server's flags name. Thread-safe.
class ParsingPlan {
 public:
  // `text` must outlive it.
  explicit ParsingPlan(const ModelText& text);

  // Of the served model's own template.
  const dialects::DialectChoice& choice() const { return choice_; }
  dialects::DialectChoice choice_for(const openai::ChatInput& chat) const;
  // Null: the text of an answer to `prompt` is its content.
  std::shared_ptr<const ParsingOptions> options(const openai::ChatRequest& request,
                                                std::string_view prompt) const;

 private:
  dialects::DialectChoice choose(std::string_view chat_template) const;

  const ModelText& text_;
  const dialects::DialectChoice choice_;
};

}  // namespace quire::server
