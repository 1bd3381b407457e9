#pragma once
#include <CLI/CLI.hpp>

namespace quire::cli {

// Each adds its subcommand to the app; the callback runs it and leaves the exit status in `status`.
void add_serve(CLI::App& app, int& status);
void add_run(CLI::App& app, int& status);
void add_pull(CLI::App& app, int& status);
void add_show(CLI::App& app, int& status);
void add_list(CLI::App& app, int& status);
void add_rm(CLI::App& app, int& status);
void add_bench(CLI::App& app, int& status);
void add_quantize(CLI::App& app, int& status);
void add_replay(CLI::App& app, int& status);
void add_parse_output(CLI::App& app, int& status);

}  // namespace quire::cli
