#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "base/printable.h"
#include "bench/engine/profile_report.h"
#include "cli/chat_engine.h"
#include "cli/commands.h"
#include "cli/flag_checks.h"
#include "cli/flag_groups.h"
#include "cli/foreign_flags.h"
#include "cli/line_reader.h"
#include "cli/serve_loop.h"

namespace quire::cli {
namespace {

struct RunFlags {
  ModelFlags model;
  std::string prompt, system;
  ChatSettings settings;
};

volatile std::sig_atomic_t g_answering = 0;    // Ctrl-C stops an answer; otherwise the program
volatile std::sig_atomic_t g_interrupted = 0;  // set by Ctrl-C, looked at while an answer is made

void on_interrupt(int) {
  // A second Ctrl-C in a row ends the program, too.
  if (!g_answering || g_interrupted) std::_Exit(130);
  g_interrupted = 1;
}

// Whether a terminal shows more than text (https://no-color.org).
bool has_colours() {
  const char *none = std::getenv("NO_COLOR"), *term = std::getenv("TERM");
  return (none == nullptr || *none == 0) && (term == nullptr || std::string_view(term) != "dumb");
}

// A conversation, and the commands of whoever types.
class Conversation {
 public:
  Conversation(const RunFlags& flags, RunningModel& model)
      : engine_(model),
        settings_(flags.settings),
        people_(isatty(STDERR_FILENO) != 0),
        view_(stdout, isatty(STDOUT_FILENO) != 0, has_colours()) {
    chat_.system = flags.system;
  }

  // 0, or why there is no answer.
  int ask(const std::string& text);
  // Of messages until the input ends.
  int talk(LineReader& reader, bool has_commands);

 private:
  int answer();
  void report(const ChatAnswer& answer);
  // False: the conversation ends.
  bool obey(const ChatCommand& command);
  void retry();
  void set(const std::string& rest);
  void note(const std::string& text) const;  // to people, not into the answer

  ChatEngine engine_;
  Chat chat_;
  ChatSettings settings_;
  const bool people_;
  AnswerView view_;
  bool shows_status_ = false;
};

void Conversation::note(const std::string& text) const {
  const bool dim = people_ && has_colours();
  std::fprintf(stderr, "%s%s%s\n", dim ? "\x1b[2m" : "", text.c_str(), dim ? "\x1b[22m" : "");
}

int Conversation::ask(const std::string& text) {
  chat_.add_user(text);
  return answer();
}

int Conversation::answer() {
  ChatAnswer answer;
  g_interrupted = 0;
  g_answering = 1;
  try {
    answer = engine_.answer(chat_, settings_, view_, g_interrupted);
  } catch (const LoadError& error) {
    g_answering = 0;
    chat_.take_turn_back();
    std::fprintf(stderr, "quire: %s\n", printable(error.what()).c_str());
    return 1;
  }
  g_answering = 0;
  view_.finish();
  chat_.add_answer(answer.content, answer.reasoning);
  report(answer);
  if (!engine_.is_healthy()) return kEngineFailed;
  return answer.error.empty() ? 0 : 1;
}

void Conversation::report(const ChatAnswer& answer) {
  if (!answer.error.empty()) std::fprintf(stderr, "quire: %s\n", printable(answer.error).c_str());
  if (answer.dropped > 0)
    note("(the context is full: the oldest " + std::to_string(answer.dropped) +
         (answer.dropped == 1 ? " turn was" : " turns were") + " left out)");
  if (answer.is_context_full)
    note("(the answer was cut: the context of " + std::to_string(engine_.context()) +
         " tokens is full)");
  else if (answer.is_cut)
    note("(the answer was cut at " + std::to_string(answer.output_tokens) +
         " tokens; --max-tokens or /set max_tokens allows more)");
  if (!shows_status_) return;
  const int64_t used = answer.prompt_tokens + answer.output_tokens;
  char text[160];
  const double rate = answer.seconds > 0 && answer.output_tokens > 1
                          ? static_cast<double>(answer.output_tokens - 1) / answer.seconds
                          : 0;
  std::snprintf(text, sizeof text, "[%lld tokens, %.1f tokens/s, context %lld of %lld (%lld %%)%s]",
                static_cast<long long>(answer.output_tokens), rate, static_cast<long long>(used),
                static_cast<long long>(engine_.context()),
                static_cast<long long>(100 * used / engine_.context()),
                answer.was_stopped ? ", stopped" : "");
  note(text);
}

void Conversation::set(const std::string& rest) {
  if (rest.empty()) {
    const std::string changed = settings_.text();
    return note(changed.empty() ? "(nothing was set: all is as the model's files say)" : changed);
  }
  const size_t end = rest.find_first_of(" \t");
  const size_t begin = end == std::string::npos ? end : rest.find_first_not_of(" \t", end);
  const auto done =
      settings_.set(rest.substr(0, end), begin == std::string::npos ? "" : rest.substr(begin));
  if (!done) note(done.error());
}

void Conversation::retry() {
  if (!chat_.take_answer_back()) return note("(there is no answer yet)");
  if (settings_.seed) ++*settings_.seed;  // else it would be the same again
  answer();
}

bool Conversation::obey(const ChatCommand& command) {
  try {
    if (command.name == "/exit" || command.name == "/bye" || command.name == "/quit") return false;
    if (command.name == "/help" || command.name == "/?") {
      note(chat_help());
    } else if (command.name == "/system") {
      chat_.system = command.rest;
    } else if (command.name == "/set") {
      set(command.rest);
    } else if (command.name == "/retry") {
      retry();
    } else if (command.name == "/clear") {
      chat_.clear();
    } else if (command.name == "/save" && !command.rest.empty()) {
      chat_.save(command.rest);
      note("(saved)");
    } else if (command.name == "/load" && !command.rest.empty()) {
      chat_.load(command.rest);
      note("(" + std::to_string(chat_.turns()) + " turns)");
    } else if (command.name == "/save" || command.name == "/load") {
      note(command.name + " FILE");
    } else {
      const std::string near = nearest_word(command.name, chat_commands());
      note("there is no command " + printable(command.name) +
           (near.empty() ? "; /help names them" : "; did you mean " + near + "?"));
    }
  } catch (const LoadError& error) {
    note(printable(error.what()));
  }
  return true;
}

int Conversation::talk(LineReader& reader, bool has_commands) {
  shows_status_ = has_commands;
  int status = 0;
  for (bool interrupted = false; status != kEngineFailed;) {
    auto message = read_message(reader, interrupted);
    if (!message) break;
    if (interrupted) {
      note("(Ctrl-D or /exit ends the chat)");
      continue;
    }
    if (message->empty()) continue;
    const auto command = has_commands ? parse_command(*message) : std::nullopt;
    if (!command) {
      status = ask(*message);
    } else if (!obey(*command)) {
      break;
    }
  }
  return status;
}

// On a terminal: until its user has enough. Errors were shown; the last one is no news.
int talk_to_a_person(Conversation& conversation) {
  FILE* shown = isatty(STDERR_FILENO) != 0 ? stderr : stdout;
  const auto reader = make_terminal_reader(shown, history_file());
  std::fprintf(stderr, "Type a message, or /help. Ctrl-C stops an answer, Ctrl-D ends the chat.\n");
  const int status = conversation.talk(*reader, true);
  return status == kEngineFailed ? status : 0;
}

int run(const RunFlags& flags) {
  RunningModel model = start_engine(flags.model);
  Conversation conversation(flags, model);
  std::signal(SIGINT, on_interrupt);
  int status = 0;
  if (!flags.prompt.empty()) {
    status = conversation.ask(flags.prompt);
  } else if (isatty(STDIN_FILENO) != 0) {
    status = talk_to_a_person(conversation);
  } else {
    status = conversation.talk(*make_plain_reader(), false);
  }
  if (model.profile) bench::print_profile(stderr, model.profile->take());
  return status;
}

void add_answer_flags(CLI::App& command, ChatSettings& settings) {
  command
      .add_option("--temperature", settings.temperature,
                  "0: the likeliest token each time; default, as that of the next ones: what the "
                  "model's generation_config.json says")
      ->check(CLI::Range(0.0, 100.0))
      ->check(not_nan());
  command
      .add_option("--top-p", settings.top_p,
                  "Sample from the likeliest tokens of this total probability")
      ->check(CLI::Range(1e-6, 1.0))
      ->check(not_nan());
  command.add_option("--top-k", settings.top_k, "Sample from so many likeliest tokens; 0: all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31));
  command
      .add_option("--min-p", settings.min_p,
                  "Sample from tokens at least so likely, as a share of the likeliest one")
      ->check(CLI::Range(0.0, 1.0))
      ->check(not_nan());
  command
      .add_option("--max-tokens", settings.max_tokens,
                  "Longest answer; default: what the context has room for")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
}

}  // namespace

void add_run(CLI::App& app, int& status) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* command =
      app.add_subcommand("run", "Chat with a model in the terminal, or answer one prompt");
  add_config_flag(*command);
  add_model_flags(*command, flags->model);
  add_profile_flag(*command, flags->model.profile);
  command->add_option("prompt", flags->prompt,
                      "Answer this and exit; without it a chat begins, of lines if standard input "
                      "is no terminal");
  command->add_option("--system", flags->system, "System message");
  add_answer_flags(*command, flags->settings);
  group_flags(*command);
  command->callback([flags, &status] {
    find_model_folder(flags->model);
    status = run(*flags);
  });
}

}  // namespace quire::cli
