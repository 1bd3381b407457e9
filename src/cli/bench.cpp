#include "cli/bench.h"

#include <cstdio>

#include "base/error.h"
#include "cli/commands.h"

namespace quire::cli {

void add_bench(CLI::App& app, int& status) {
  CLI::App* bench =
      app.add_subcommand("bench", "Measure kernels, the engine or a server")->require_subcommand(1);
  add_bench_ops(*bench, status);
  add_bench_throughput(*bench, status);
  add_bench_latency(*bench, status);
  add_bench_serve(*bench, status);
  add_bench_ablations(*bench, status);
  add_bench_guard(*bench, status);
  add_bench_roofline(*bench, status);
  add_bench_scheduler(*bench, status);
}

void add_dataset_flags(CLI::App& app, bench::DatasetOptions& options) {
  app.add_option("--dataset-name,--dataset", options.name,
                 "random, prefix_repetition, or sharegpt (needs --dataset-path)")
      ->check(CLI::IsMember({"random", "prefix_repetition", "sharegpt"}))
      ->capture_default_str();
  app.add_option("--dataset-path", options.path, "The data set's JSON file");
  app.add_option("--num-prompts", options.num_prompts, "Requests in all")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  const auto tokens = [&app](const char* name, int64_t& value, const char* help) {
    app.add_option(name, value, help)->check(CLI::Range(1, 1 << 20))->capture_default_str();
  };
  tokens("--random-input-len,--input-len", options.random_input_len, "random: tokens in a prompt");
  tokens("--random-output-len,--output-len", options.random_output_len,
         "random: tokens to produce");
  app.add_option("--random-prefix-len", options.random_prefix_len,
                 "random: more tokens in front, the same in all prompts")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--random-range-ratio", options.random_range_ratio,
                 "random: lengths vary by this share, up and down")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  tokens("--prefix-repetition-prefix-len", options.prefix_len, "prefix_repetition: shared tokens");
  tokens("--prefix-repetition-suffix-len", options.suffix_len,
         "prefix_repetition: tokens after it");
  tokens("--prefix-repetition-num-prefixes", options.num_prefixes,
         "prefix_repetition: different prefixes");
  tokens("--prefix-repetition-output-len", options.prefix_output_len,
         "prefix_repetition: tokens to produce");
  app.add_option("--sharegpt-output-len", options.sharegpt_output_len,
                 "sharegpt: tokens to produce; default: as many as the recorded answer has")
      ->check(CLI::Range(1, 1 << 20));
}

void write_text(const std::string& path, const std::string& text, const char* flag) {
  FILE* file = std::fopen(path.c_str(), "w");
  const bool written = file && std::fprintf(file, "%s\n", text.c_str()) >= 0;
  if ((file && std::fclose(file) != 0) || !written)
    throw LoadError(std::string(flag) + ": cannot write " + path);
}

}  // namespace quire::cli
