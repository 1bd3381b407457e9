#pragma once
#include <CLI/CLI.hpp>

#include "bench/dataset.h"

namespace quire::cli {

// The subcommands of `quire bench`, one file each.
void add_bench_ops(CLI::App& bench, int& status);
void add_bench_throughput(CLI::App& bench, int& status);
void add_bench_latency(CLI::App& bench, int& status);
void add_bench_serve(CLI::App& bench, int& status);
void add_bench_ablations(CLI::App& bench, int& status);
void add_bench_guard(CLI::App& bench, int& status);
void add_bench_roofline(CLI::App& bench, int& status);
void add_bench_scheduler(CLI::App& bench, int& status);

// --dataset-name, --num-prompts and what belongs to each data set, as vLLM spells them.
void add_dataset_flags(CLI::App& app, bench::DatasetOptions& options);

// Writes a line of text to a file. Throws LoadError naming `flag`.
void write_text(const std::string& path, const std::string& text, const char* flag);

}  // namespace quire::cli
