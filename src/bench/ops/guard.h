#pragma once
#include <string>
#include <vector>

#include "base/json.h"

namespace quire::bench {

struct GuardOptions {
  int threads = 0;         // 0: one per physical core
  double min_time = 0.15;  // seconds for each case and pass
  int passes = 3;          // of the cases of quire bench ops, and twice as many of the formats
};

// What guards against regressions: figures that hold from machine to machine of a kind, not times.
//   {"cpu": "AMD EPYC, family 26 model 17", "isa": "avx512_bf16", "threads": 2,
//    "shares": {case of quire bench ops: its shares of the roofline},
//    "times_bf16": {"avx2/affine4": how many times as fast as bfloat16 one row is}}
// A figure is [least, median, most] of the passes, or of the rounds. The second table is of every
// instruction set that can be forced here. Prints what it measures.
json::object measure_guard(const GuardOptions& options);

// The figures as a file to keep: one a line, with three decimals.
std::string guard_text(const json::object& figures);

// The file of the figures' kind of CPU: "amd-epyc-family-26-model-17-avx512_bf16-2-threads.json".
std::string guard_file_name(const json::object& figures);

struct GuardFigure {
  double least = 0, median = 0, most = 0;

  bool operator==(const GuardFigure&) const = default;
};

// A figure beside the baseline's, in either table.
struct GuardChange {
  std::string name;
  GuardFigure before, now;

  bool operator==(const GuardChange&) const = default;
};

struct GuardComparison {
  std::vector<GuardChange> moved;        // all of it, by more than the tolerance, up or down
  std::vector<std::string> only_before;  // cases that one side has not
  std::vector<std::string> only_now;
};

// `tolerance` is a share of the baseline's least or most. Throws LoadError if `baseline` is not of
// that form, or of another kind of CPU, instruction set or number of threads.
GuardComparison compare_guard(const json::object& baseline, const json::object& now,
                              double tolerance);

// The entries of "times_bf16" whose quantised weights are slower than bfloat16, by the median, by
// more than a clock may err.
std::vector<std::string> slower_than_bf16(const json::object& figures);

// Those of them that are slower than the baseline's least, by more than the tolerance. What a
// baseline does not know (null: there is none) counts on the instruction set that the figures are
// of, which is what users get, and not on those that were forced.
std::vector<std::string> newly_slower_than_bf16(const json::object& figures,
                                                const json::object* baseline, double tolerance);

}  // namespace quire::bench
