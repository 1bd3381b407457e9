#include <cstdio>
#include <exception>

#include "base/error.h"
#include "cli/commands.h"

#ifndef QUIRE_VERSION
#error "the build defines QUIRE_VERSION"
#endif

int main(int argc, char** argv) {
  CLI::App app(
      "Quire serves large language models from paged memory.\n"
      "\n"
      "  quire serve MODEL_DIR            an OpenAI-compatible server on http://127.0.0.1:8000\n"
      "  quire run MODEL_DIR [PROMPT]     a chat in the terminal, or one answer\n"
      "  quire bench throughput MODEL_DIR how fast this machine is\n"
      "  quire quantize SRC DST           4- or 8-bit weights of a model, in the format of MLX\n"
      "\n"
      "MODEL_DIR is a Hugging Face model folder. Each command has its own --help.",
      "quire");
  app.set_version_flag("--version", "quire " QUIRE_VERSION);
  app.require_subcommand(1);
  int status = 0;
  quire::cli::add_serve(app, status);
  quire::cli::add_run(app, status);
  quire::cli::add_bench(app, status);
  quire::cli::add_quantize(app, status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  } catch (const quire::LoadError& error) {
    std::fprintf(stderr, "quire: %s\n", error.what());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quire: unexpected: %s\n", error.what());
    return 1;
  }
  return status;
}
