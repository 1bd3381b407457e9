#include "server/process_metrics.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace quire::server {
namespace {

// A name with a bracket and blanks; 250 ticks of user and 150 of system time, started 1,000 ticks
// after the boot, 4096 bytes of address space, three pages in memory.
TEST(ProcessMetrics, FieldsOfTheStatFile) {
  const std::string stat =
      "17 (a ) b) S 1 17 17 0 -1 4194304 1 2 3 4 250 150 0 0 20 0 9 0 1000 4096 3 "
      "18446744073709551615";
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const ProcessState state = parse_process_stat(stat, 5e8);
  EXPECT_DOUBLE_EQ(state.cpu_seconds, 400 / ticks);
  EXPECT_DOUBLE_EQ(state.start_seconds, 5e8 + 1000 / ticks);
  EXPECT_EQ(state.virtual_bytes, 4096);
  EXPECT_EQ(state.resident_bytes, 3.0 * static_cast<double>(sysconf(_SC_PAGESIZE)));
}

TEST(ProcessMetrics, BrokenFilesGiveZeros) {
  for (const char* stat : {"", "17", "17 (a)", "17 (a) S 1"})
    EXPECT_EQ(parse_process_stat(stat, 0).resident_bytes, 0) << stat;
}

TEST(ProcessMetrics, ThisProcessHasSome) {
  const ProcessState state = read_process_state();
  EXPECT_GT(state.resident_bytes, 100'000);
  EXPECT_GT(state.virtual_bytes, state.resident_bytes);
  EXPECT_GT(state.start_seconds, 1.6e9);
  EXPECT_GE(state.open_files, 3);
  EXPECT_GE(state.max_files, state.open_files);
}

}  // namespace
}  // namespace quire::server
