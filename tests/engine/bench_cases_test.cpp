// quire bench ops times what models run: every op that a step of any tiny checkpoint has as a node,
// and no other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/source_dir.h"
#include "bench/engine/offline.h"
#include "bench/ops/cases.h"
#include "engine_harness.h"
#include "ops/runtime/profile.h"
#include "ops/runtime/test_device.h"

namespace quire::engine {
namespace {

// Prompts in chunks, some that begin alike, decodes with lookahead, and states that are asked for.
std::vector<Job> jobs_for(const std::string& checkpoint) {
  const int64_t vocab = open_checkpoint(checkpoint).config().vocab_size;
  std::vector<Job> jobs = random_jobs(6, vocab, 3, 100, 8);
  Job pooled = jobs.front();
  pooled.pooling = Pooling{};
  pooled.sampling.max_tokens = 0;
  jobs.push_back(std::move(pooled));
  return jobs;
}

void add_ops_of(const std::string& checkpoint, std::set<std::string>& ops,
                const std::string& adapter = "") {
  const auto profile = std::make_shared<ops::Profile>();
  const auto engine =
      make_engine({.checkpoint = checkpoint,
                   .max_num_batched_tokens = 50,
                   .max_model_len = 256,
                   .prefix_caching = true,
                   .lookahead = true,
                   .adapters = adapter.empty() ? std::vector<std::string>() : std::vector{adapter},
                   .profile = profile});
  std::vector<Job> jobs = jobs_for(checkpoint);
  if (!adapter.empty()) jobs.front().adapter = 0;
  run_jobs(*engine, jobs);
  run_jobs(*engine, jobs);  // finds prefixes, and the states saved with them
  for (const auto& [kind, step] : profile->take())
    for (const auto& [key, time] : step.kernels) ops.insert(key.name.substr(0, key.name.find('/')));
}

TEST(BenchCases, AreOfTheOpsThatModelsRun) {
  std::set<std::string> run, timed;
  const std::string folder = "tests/parity/models";
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() + "/" + folder))
    if (entry.is_directory()) add_ops_of(folder + "/" + entry.path().filename().string(), run);
  add_ops_of(folder + "/qwen3", run, "tests/parity/adapters/qwen3/all");
  for (const bench::OpCases& cases : bench::op_cases()) timed.insert(cases.op);
  EXPECT_THAT(timed, testing::ContainerEq(run))
      << "an op that models run needs cases in src/ops/OP/OP_bench.cpp and a line in "
         "src/bench/ops/cases.cpp; one that no model runs is not timed";
}

// A device that is lost takes all requests along, one after another.
TEST(BenchOffline, TellsWhyRequestsFailed) {
  const auto device = std::make_shared<ops::testing::TestDevice>("cpu");
  const OnDevice there(device);
  const auto engine =
      make_engine({.checkpoint = "tests/parity/models/qwen3-bf16", .max_model_len = 256});
  device->lose_at_wait(5);
  const auto requests = bench::random_requests(8, 20, 40, /*vocab_size=*/100, /*seed=*/1);
  EXPECT_THAT([&] { bench::run_offline(*engine, requests); },
              testing::ThrowsMessage<LoadError>(
                  testing::HasSubstr("a request failed: cpu: a kernel failed")));
}

// With a filter that nothing passes, no case makes its data: they are only asked for their names.
TEST(BenchCases, AreNamedAfterTheirOp) {
  bench::OpBench bench({.filter = "^$"}, ops::make_context(1), {});
  std::set<std::string> seen;
  for (const bench::OpCases& cases : bench::op_cases()) {
    const size_t before = bench.names().size();
    bench.run(cases);
    EXPECT_GT(bench.names().size(), before) << cases.op << " has no case";
    for (size_t i = before; i < bench.names().size(); ++i) {
      EXPECT_THAT(bench.names()[i], testing::StartsWith(std::string(cases.op) + "/"));
      EXPECT_TRUE(seen.insert(bench.names()[i]).second) << bench.names()[i] << " comes twice";
    }
  }
  EXPECT_TRUE(bench.take_results().empty());
}

}  // namespace
}  // namespace quire::engine
