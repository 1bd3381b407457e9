#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "base/error.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/config_file.h"
#include "cli/foreign_flags.h"
#include "cli/usage.h"

#ifndef QUIRE_VERSION
#error "the build defines QUIRE_VERSION"
#endif

namespace {

constexpr const char* kDescription =
    "Quire serves large language models from paged memory.\n"
    "\n"
    "  quire serve MODEL                an OpenAI-compatible server on http://127.0.0.1:8000\n"
    "  quire run MODEL [PROMPT]         a chat in the terminal, or one answer\n"
    "  quire pull ORG/NAME              fetch a model from a hub\n"
    "  quire list, show, rm             the models that were fetched\n"
    "  quire bench throughput MODEL     how fast this machine is\n"
    "  quire replay FILE                a recorded session against a running server\n"
    "  quire quantize SRC DST           4- or 8-bit weights of a model, in the format of MLX\n"
    "  quire parse-output DIALECT       a model's raw text as content, reasoning and tool calls\n"
    "\n"
    "MODEL is a Hugging Face model folder, or the name ORG/NAME[@REV] of one on a hub. Each "
    "command has its own --help.";

// The commands that take what vLLM's and llama.cpp's servers take, and files of flags.
bool loads_a_model(const std::vector<std::string>& arguments) {
  return !arguments.empty() && (arguments[0] == "serve" || arguments[0] == "run");
}

// Where standard input, output or error is closed, the next file or socket would take its number,
// and what is printed would go there. Its use still fails: it is opened the other way round.
void open_standard_files() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(file, F_GETFD) >= 0 || errno != EBADF) continue;
    // It takes the lowest number that is free.
    if (::open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY) != file)
      std::exit(1);  // nobody to tell
  }
}

// `status`, or 1 if it was 0 and what was printed did not arrive: a disk is full, a file closed.
int check_printed(int status) {
  if ((std::fflush(stdout) == 0 && std::ferror(stdout) == 0) || status != 0) return status;
  std::fprintf(stderr, "quire: standard output cannot be written\n");
  return 1;
}

int run_command(int argc, char** argv) {
  CLI::App app(kDescription, "quire");
  app.set_version_flag("--version", "quire " QUIRE_VERSION);
  app.require_subcommand(1);
  constexpr size_t kMostBytes = 4000;  // of an error: it may quote a file
  int status = 0;
  quire::cli::add_serve(app, status);
  quire::cli::add_run(app, status);
  quire::cli::add_pull(app, status);
  quire::cli::add_show(app, status);
  quire::cli::add_list(app, status);
  quire::cli::add_rm(app, status);
  quire::cli::add_bench(app, status);
  quire::cli::add_quantize(app, status);
  quire::cli::add_replay(app, status);
  quire::cli::add_parse_output(app, status);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (const auto line = quire::cli::unknown_command(app, arguments); !line.empty()) {
    std::fprintf(stderr, "quire: %s\n", line.c_str());
    return static_cast<int>(CLI::ExitCodes::ExtrasError);
  }
  if (loads_a_model(arguments)) {
    auto screened = quire::cli::screen_foreign_flags(arguments, [&](const std::string& option) {
      return quire::cli::takes_value(app, arguments, option);
    });
    if (!screened) {
      std::fprintf(stderr, "quire: %s\n", screened.error().c_str());
      return static_cast<int>(CLI::ExitCodes::ExtrasError);
    }
    for (const std::string& notice : screened->notices)
      std::fprintf(stderr, "quire: %s\n", notice.c_str());
    arguments = std::move(screened->arguments);
  }
  try {
    if (loads_a_model(arguments))
      for (const std::string& notice : quire::cli::use_variables(
               *app.get_subcommand(arguments[0]), quire::cli::config_argument(arguments)))
        std::fprintf(stderr, "quire: %s\n", notice.c_str());
    // CLI11 takes them from the back.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    const bool has_extras = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
    if (has_extras) std::fprintf(stderr, "quire: %s\n", quire::cli::extras_text(app).c_str());
    const int code = has_extras ? error.get_exit_code() : app.exit(error);
    const auto hint = code == 0 ? "" : quire::cli::flag_suggestion(app, arguments);
    if (!hint.empty()) std::fprintf(stderr, "%s\n", hint.c_str());
    return code;
  } catch (const quire::LoadError& error) {
    std::fprintf(stderr, "quire: %s\n", quire::printable(error.what(), kMostBytes).c_str());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quire: unexpected: %s\n",
                 quire::printable(error.what(), kMostBytes).c_str());
    return 1;
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_files();
  return check_printed(run_command(argc, argv));
}
