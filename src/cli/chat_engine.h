#pragma once
#include <csignal>
#include <memory>
#include <string>

#include "cli/answer_view.h"
#include "cli/chat.h"
#include "cli/start_engine.h"
#include "server/options.h"
#include "server/parsing_plan.h"
#include "server/prompt_builder.h"

namespace quire::cli {

// What became of an answer.
struct ChatAnswer {
  std::string content, reasoning;
  std::string error;             // why there is none, or no more of it
  bool is_cut = false;           // it reached the limit of tokens
  bool is_context_full = false;  // and that limit was the context's
  bool was_stopped = false;      // by Ctrl-C
  size_t dropped = 0;            // oldest turns that were left out of the chat to make room
  int64_t prompt_tokens = 0, output_tokens = 0;
  double seconds = 0;  // from the first token to the last
};

// Answers chats with a model, in this process.
class ChatEngine {
 public:
  explicit ChatEngine(RunningModel& model);

  // Shows the answer to the chat's last turn as it is made. Turns that the context has no room for
  // are taken out of the chat, the oldest first. `stop`: set by a signal, ends the answer. Throws
  // LoadError if the template refuses the conversation, or if the last turn alone is too long.
  ChatAnswer answer(Chat& chat, const ChatSettings& settings, AnswerView& view,
                    const volatile std::sig_atomic_t& stop);

  int64_t context() const;  // tokens
  bool is_healthy() const;

 private:
  struct Prompt {
    std::string text;
    std::vector<int32_t> ids;
  };
  Prompt build(const Chat& chat, const ChatSettings& settings) const;
  Prompt build_to_fit(Chat& chat, const ChatSettings& settings, size_t& dropped) const;
  engine::Request make_request(const Prompt& prompt, const ChatSettings& settings) const;
  ChatAnswer run(const Prompt& prompt, engine::Request request, AnswerView& view,
                 const volatile std::sig_atomic_t& stop);

  RunningModel& model_;
  server::ModelText text_;
  server::ParsingPlan parsing_;
  std::unique_ptr<server::PromptBuilder> prompts_;
};

}  // namespace quire::cli
