#include "cli/chat_engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "cli/sampling_defaults.h"
#include "engine/token_queue.h"
#include "server/session.h"

namespace quire::cli {
namespace {

// How late Ctrl-C may be noticed.
constexpr std::chrono::milliseconds kLook{50};
// What an answer gets at least before turns are left out, unless it is to be shorter: this part of
// the context, and no more than so many tokens.
constexpr int64_t kAnswerPart = 4, kAnswerTokens = 1024;

server::ModelText text_of(const RunningModel& model) {
  return {.tokenizer = model.tokenizer,
          .chat_template = model.chat_template,
          .grammars = nullptr,
          .eos_token_ids = model.eos_token_ids,
          .defaults = sampling_defaults(model.generation_config)};
}

server::openai::ChatRequest request_of(const Chat& chat, const ChatSettings& settings) {
  server::openai::ChatRequest request;
  request.chat.messages = chat.messages();
  request.chat.reasoning.thinking = settings.think;
  request.chat.reasoning.thinking_field = "/set think";
  return request;
}

// The conversation for a model without a template: its texts, one after the other.
std::string plain_text(const Chat& chat) {
  std::string text;
  for (const json::value& message : chat.messages())
    text += message.get_object().at("content").get_string();
  return text;
}

}  // namespace

ChatEngine::ChatEngine(RunningModel& model)
    : model_(model), text_(text_of(model)), parsing_(text_) {
  prompts_ = std::make_unique<server::PromptBuilder>(text_, context());
}

int64_t ChatEngine::context() const { return model_.engine->max_model_len(); }

bool ChatEngine::is_healthy() const { return model_.engine->stats().healthy; }

ChatEngine::Prompt ChatEngine::build(const Chat& chat, const ChatSettings& settings) const {
  Prompt prompt;
  const bool has_template = model_.chat_template != nullptr;
  if (has_template) {
    WorkBudget budget;
    auto rendered = prompts_->render(request_of(chat, settings).chat, budget);
    if (!rendered) throw LoadError("the chat template: " + rendered.error().message);
    prompt.text = std::move(*rendered);
  } else {
    prompt.text = plain_text(chat);
  }
  auto ids = model_.tokenizer->encode(prompt.text, /*add_special_tokens=*/!has_template);
  if (!ids) throw LoadError("the prompt: " + ids.error());
  prompt.ids = std::move(*ids);
  return prompt;
}

ChatEngine::Prompt ChatEngine::build_to_fit(Chat& chat, const ChatSettings& settings,
                                            size_t& dropped) const {
  const int64_t wanted = std::min(settings.max_tokens.value_or(kAnswerTokens),
                                  std::max<int64_t>(1, context() / kAnswerPart));
  Prompt prompt = build(chat, settings);
  const auto length = [&] { return static_cast<int64_t>(prompt.ids.size()); };
  while (length() + wanted > context() && chat.drop_oldest()) {
    ++dropped;
    prompt = build(chat, settings);
  }
  if (length() < context()) return prompt;
  throw LoadError("this message has " + std::to_string(length()) +
                  " tokens with what belongs to it, and the context is " +
                  std::to_string(context()) + "; it was left out");
}

engine::Request ChatEngine::make_request(const Prompt& prompt, const ChatSettings& settings) const {
  const server::SamplingDefaults& usual = text_.defaults;
  engine::Request request;
  request.prompt = prompt.ids;
  engine::SamplingParams& sampling = request.sampling;
  sampling.temperature = static_cast<float>(settings.temperature.value_or(usual.temperature));
  sampling.top_p = static_cast<float>(settings.top_p.value_or(usual.top_p));
  sampling.min_p = static_cast<float>(settings.min_p.value_or(usual.min_p));
  sampling.top_k = static_cast<int32_t>(settings.top_k.value_or(usual.top_k));
  sampling.repetition_penalty =
      static_cast<float>(settings.repetition_penalty.value_or(usual.repetition_penalty));
  sampling.seed = settings.seed;
  const int64_t room = context() - static_cast<int64_t>(prompt.ids.size());
  sampling.max_tokens =
      std::min(settings.max_tokens.value_or(usual.max_new_tokens.value_or(room)), room);
  return request;
}

ChatAnswer ChatEngine::answer(Chat& chat, const ChatSettings& settings, AnswerView& view,
                              const volatile std::sig_atomic_t& stop) {
  size_t dropped = 0;
  const Prompt prompt = build_to_fit(chat, settings, dropped);
  ChatAnswer answer = run(prompt, make_request(prompt, settings), view, stop);
  answer.dropped = dropped;
  return answer;
}

ChatAnswer ChatEngine::run(const Prompt& prompt, engine::Request request, AnswerView& view,
                           const volatile std::sig_atomic_t& stop) {
  ChatAnswer answer;
  answer.prompt_tokens = static_cast<int64_t>(prompt.ids.size());
  const int64_t limit = request.sampling.max_tokens;
  server::Session session(model_.tokenizer, prompt.ids,
                          {.stop = nullptr,
                           .stop_token_ids = {},
                           .eos_token_ids = model_.eos_token_ids,
                           .echo_text = {},
                           .parsing = parsing_.options({}, prompt.text)});
  engine::TokenQueue queue;
  request.sink = queue.sink();
  const auto id = model_.engine->submit(std::move(request));
  if (!id) throw LoadError(id.error().message);
  std::optional<server::Finish> finish;
  while (!finish) {
    while (!queue.wait_for(kLook))
      if (stop != 0 && !std::exchange(answer.was_stopped, true)) model_.engine->abort(*id);
    server::TextDelta delta = session.push(queue.wait());
    view.reasoning(delta.reasoning);
    view.content(delta.text);
    answer.reasoning += delta.reasoning;
    answer.content += delta.text;
    finish = std::move(delta.finish);
    if (stop != 0 && !finish && !std::exchange(answer.was_stopped, true)) model_.engine->abort(*id);
  }
  const engine::RequestStats& stats = session.stats();
  answer.error = finish->error;
  answer.is_cut = finish->reason == engine::FinishReason::kLength;
  answer.is_context_full = answer.is_cut && answer.prompt_tokens + limit >= context();
  answer.output_tokens = session.num_output_tokens();
  answer.seconds = seconds_between(stats.first_token, stats.finished);
  return answer;
}

}  // namespace quire::cli
