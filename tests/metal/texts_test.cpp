#include <gmock/gmock.h>

#include <string>

#include "emulator.h"
#include "ops/metal/metal_texts.h"

namespace quire::emulator::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetalTexts, HaveAllThatMetalNeeds) {
  std::vector<std::string> ops;
  for (const quire::ops::MetalText& entry : quire::ops::metal_texts()) {
    ops.emplace_back(entry.op);
    EXPECT_THAT(entry.text, HasSubstr("#include <metal_stdlib>")) << entry.op;
    EXPECT_THAT(entry.text, Not(HasSubstr("#include \""))) << entry.op;
    EXPECT_THAT(entry.text, Not(HasSubstr("MetalCall"))) << entry.op << " has the host's part";
    EXPECT_THAT(entry.text, HasSubstr("_metal.metal\""))
        << entry.op << " says where lines are from";
  }
  EXPECT_THAT(ops, ::testing::ElementsAre("causal_conv1d", "copy_slots", "gated_delta_rule",
                                          "gather_pages", "kv_write", "paged_attention",
                                          "qk_norm_rope_kv_write", "sample"));
}

// A kernel is looked for in its op's text.
TEST(MetalTexts, NamesBeginWithTheirOp) {
  for (const std::string& name : kernel_names()) {
    bool is_known = false;
    for (const quire::ops::MetalText& entry : quire::ops::metal_texts())
      is_known |= name.starts_with(entry.op);
    EXPECT_TRUE(is_known) << name;
  }
}

}  // namespace
}  // namespace quire::emulator::testing
