#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "bench/engine/profile_report.h"
#include "cli/commands.h"
#include "cli/flag_groups.h"
#include "cli/serve_loop.h"
#include "cli/start_engine.h"
#include "cli/terminal_text.h"
#include "engine/token_queue.h"
#include "text/detokenizer.h"

namespace quire::cli {
namespace {

struct RunFlags {
  ModelFlags model;
  std::string prompt, system;
  double temperature = 0.0, top_p = 1.0;
  int64_t max_tokens = 1024;
};

// How late Ctrl-C may be noticed.
constexpr std::chrono::milliseconds kLook{50};

volatile std::sig_atomic_t g_answering = 0;    // Ctrl-C stops an answer; otherwise the program
volatile std::sig_atomic_t g_interrupted = 0;  // set by Ctrl-C, looked at while an answer is made

void on_interrupt(int) {
  // A second Ctrl-C in a row ends the program, too.
  if (!g_answering || g_interrupted) std::_Exit(130);
  g_interrupted = 1;
}

// The chat so far and how to continue it.
class Chat {
 public:
  Chat(const RunFlags& flags, RunningModel& model) : flags_(flags), model_(model) {
    if (!flags.system.empty()) add("system", flags.system);
  }

  // Streams the answer to `text` to stdout. Ctrl-C stops it; what was said so far stays in the
  // chat. False if it ended with an error.
  bool answer(const std::string& text) {
    add("user", text);
    engine::Request request;
    request.prompt = prompt();
    request.sampling.temperature = static_cast<float>(flags_.temperature);
    request.sampling.top_p = static_cast<float>(flags_.top_p);
    request.sampling.max_tokens = flags_.max_tokens;
    engine::TokenQueue queue;
    request.sink = queue.sink();
    const auto id = model_.engine->submit(std::move(request));
    if (!id) throw LoadError(id.error().message);
    bool failed = false;
    add("assistant", stream(queue, *id, failed));
    return !failed;
  }

 private:
  std::string stream(engine::TokenQueue& queue, engine::RequestId id, bool& failed) {
    text::Detokenizer detokenizer(model_.tokenizer);
    std::string answer;
    const bool to_terminal = isatty(STDOUT_FILENO) != 0;
    const auto show = [&](const std::string& delta) {
      answer += delta;
      // A file or a pipe gets the bytes as they are.
      std::fputs((to_terminal ? terminal_text(delta) : delta).c_str(), stdout);
      std::fflush(stdout);
    };
    bool aborted = false;
    g_interrupted = 0;
    g_answering = 1;
    for (;;) {
      while (!queue.wait_for(kLook))
        if (g_interrupted && !std::exchange(aborted, true)) model_.engine->abort(id);
      const engine::TokenEvent event = queue.wait();
      for (const int32_t token : event.tokens) show(detokenizer.push(token));
      if (event.finish) {
        failed = !event.error.empty();
        if (failed) std::fprintf(stderr, "\nquire: %s", printable(event.error).c_str());
        break;
      }
      if (g_interrupted && !std::exchange(aborted, true)) model_.engine->abort(id);
    }
    g_answering = 0;
    show(detokenizer.flush());
    std::fputs("\n", stdout);
    return answer;
  }

  std::vector<int32_t> prompt() const {
    std::string text;
    if (model_.chat_template) {
      const std::string messages = dump_json(messages_);
      auto rendered = model_.chat_template->render(
          {.messages = messages, .tools = {}, .documents = {}, .kwargs = {}, .now = {}});
      if (!rendered) throw LoadError("the chat template failed: " + rendered.error());
      text = std::move(*rendered);
    } else {  // a base model: plain continuation
      for (const auto& message : messages_)
        text += json::value_to<std::string>(message.at("content"));
    }
    auto ids = model_.tokenizer->encode(text, /*add_special_tokens=*/!model_.chat_template);
    if (!ids) throw LoadError("the prompt: " + ids.error());
    return std::move(*ids);
  }

  void add(const char* role, const std::string& content) {
    messages_.emplace_back(json::object{{"role", role}, {"content", content}});
  }

  const RunFlags& flags_;
  RunningModel& model_;
  json::array messages_;
};

// 0, or why the last answer is none.
int exit_status(bool answered, const RunningModel& model) {
  if (!model.engine->stats().healthy) return kEngineFailed;
  return answered ? 0 : 1;
}

int run(const RunFlags& flags) {
  RunningModel model = start_engine(flags.model);
  Chat chat(flags, model);
  if (!flags.prompt.empty()) {
    const bool answered = chat.answer(flags.prompt);
    if (model.profile) bench::print_profile(stderr, model.profile->take());
    return exit_status(answered, model);
  }
  std::signal(SIGINT, on_interrupt);
  std::fprintf(stderr, "Type a message; Ctrl-C stops an answer, Ctrl-D ends the chat.\n");
  int status = 0;
  for (std::string line;
       status != kEngineFailed && std::fprintf(stderr, "> ") > 0 && std::getline(std::cin, line);)
    if (!line.empty()) status = exit_status(chat.answer(line), model);
  std::fputs("\n", stderr);
  if (model.profile) bench::print_profile(stderr, model.profile->take());
  return status == kEngineFailed ? status : 0;
}

}  // namespace

void add_run(CLI::App& app, int& status) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command =
      app.add_subcommand("run", "Chat with a model in the terminal, or answer one prompt");
  add_model_flags(*command, flags->model);
  add_profile_flag(*command, flags->model.profile);
  command->add_option("prompt", flags->prompt, "Answer this and exit; without it a chat begins");
  command->add_option("--system", flags->system, "System message");
  command->add_option("--temperature", flags->temperature, "0: the likeliest token each time")
      ->capture_default_str();
  command
      ->add_option("--top-p", flags->top_p,
                   "Sample from the likeliest tokens of this total probability")
      ->capture_default_str();
  command->add_option("--max-tokens", flags->max_tokens, "Longest answer")->capture_default_str();
  group_flags(*command);
  command->callback([flags, &status] {
    find_model_folder(flags->model);
    status = run(*flags);
  });
}

}  // namespace quire::cli
