#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <optional>

#include "base/cores.h"
#include "base/error.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/model_name.h"
#include "formats/quantize_checkpoint.h"

namespace quire::cli {
namespace {

struct QuantizeFlags {
  std::string source, target;
  std::string mode = "affine";
  std::optional<int> bits;
  std::optional<int64_t> group_size;
  int threads = 0;

  formats::QuantisedFormat format() const {
    formats::QuantisedFormat format = formats::usual_format(*formats::parse_mode(mode));
    const bool fixed = format.mode != formats::QuantMode::kAffine;
    if (fixed && (bits.value_or(format.bits) != format.bits ||
                  group_size.value_or(format.group_size) != format.group_size))
      throw LoadError("--mode " + mode + " has " + std::to_string(format.bits) +
                      " bits in groups of " + std::to_string(format.group_size) +
                      ": leave --bits and --group-size out");
    if (!fixed && group_size.value_or(format.group_size) == 16)
      throw LoadError("--mode affine has groups of 32, 64 or 128");
    format.bits = bits.value_or(format.bits);
    format.group_size = group_size.value_or(format.group_size);
    return format;
  }
};

volatile std::sig_atomic_t g_stopped_by = 0;  // SIGINT or SIGTERM once it came

// The first of these signals ends the work in order; the second ends the process at once.
void take_stop_signals() {
  struct sigaction action{};
  action.sa_handler = [](int signal) { g_stopped_by = signal; };
  action.sa_flags = SA_RESETHAND;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

// Matrices that have lost more than one of a hundred groups, the worst one by name.
void print_lost(const formats::QuantizeReport& report, const std::string& mode) {
  const auto share = [](const formats::QuantizeReport::Lost& lost) {
    return static_cast<double>(lost.groups) / static_cast<double>(lost.of);
  };
  const auto bad =
      std::ranges::count_if(report.lost, [&](const auto& l) { return share(l) > 0.01; });
  if (bad == 0) return;
  const auto& worst = *std::ranges::max_element(report.lost, {}, share);
  std::printf(
      "warning: %lld matrices have lost groups of weights: they are 0 now, since %s has no scale "
      "small enough; %.0f %% of %s; take --mode mxfp4 or affine\n",
      static_cast<long long>(bad), mode.c_str(), 100 * share(worst),
      printable(worst.layer).c_str());
}

int quantize(const QuantizeFlags& flags) {
  const std::string source = find_model(flags.source).folder;
  take_stop_signals();
  ThreadPool pool(flags.threads > 0 ? flags.threads : usable_physical_cores());
  formats::QuantizeOptions options;
  options.format = flags.format();
  options.stop = [] { return g_stopped_by != 0; };
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (terminal)
    options.progress = [](double done) {
      std::fprintf(stderr, "\rquantising %3.0f%%", 100 * done);
    };
  formats::QuantizeReport report;
  try {
    report = formats::quantize_checkpoint(source, flags.target, options, pool);
  } catch (const LoadError&) {
    if (g_stopped_by == 0) throw;
    std::fprintf(stderr, "%squire: stopped; nothing was written\n", terminal ? "\n" : "");
    return 128 + g_stopped_by;
  }
  if (terminal) std::fprintf(stderr, "\r                \r");
  std::printf(
      "%s: %lld matrices in %s, %d bits, groups of %lld; %.1f MB of weights became %.1f MB\n",
      flags.target.c_str(), static_cast<long long>(report.quantised), flags.mode.c_str(),
      options.format.bits, static_cast<long long>(options.format.group_size),
      static_cast<double>(report.bytes_before) / 1e6,
      static_cast<double>(report.bytes_after) / 1e6);
  for (const auto& [name, group_size] : report.kept)
    std::printf("not quantised: %s (its rows are no multiple of %lld)\n", printable(name).c_str(),
                static_cast<long long>(group_size));
  print_lost(report, flags.mode);
  return 0;
}

}  // namespace

void add_quantize(CLI::App& app, int& status) {
  auto flags = std::make_shared<QuantizeFlags>();
  CLI::App* command = app.add_subcommand(
      "quantize", "Write a model with weights of 2 to 8 bits, in the format of MLX");
  command
      ->add_option("source", flags->source,
                   "Model folder, or ORG/NAME[@REV] of a hub: bfloat16, float16 or float32 "
                   "weights")
      ->required()
      ->type_name("SRC");
  command->add_option("target", flags->target, "Folder to write; must not exist or be empty")
      ->required()
      ->type_name("DST");
  command
      ->add_option("--mode", flags->mode,
                   "affine: integers; mxfp4, mxfp8, nvfp4: small floats with a scale of a byte")
      ->check(CLI::IsMember({"affine", "mxfp4", "mxfp8", "nvfp4"}))
      ->capture_default_str();
  command->add_option("--bits", flags->bits, "Bits of a weight; affine: 4 unless said")
      ->check(CLI::IsMember({2, 3, 4, 5, 6, 8}));
  command
      ->add_option("--group-size", flags->group_size,
                   "Weights that share a scale; affine: 64 unless said")
      ->check(CLI::IsMember({16, 32, 64, 128}));
  command->add_option("--threads", flags->threads, "Compute threads; 0: one per physical core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->callback([flags, &status] { status = quantize(*flags); });
}

}  // namespace quire::cli
