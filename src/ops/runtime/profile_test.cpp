#include "ops/runtime/profile.h"

#include "ops/linear/linear.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr StepKind kDecode{.type = StepKind::Type::kDecode, .sequences = 3};
constexpr StepKind kPrefill{.type = StepKind::Type::kPrefill};

// Kernels are timed under the kind of step that was being launched, however late they run.
TEST(Profile, KernelsBelongToTheStepThatLaunchedThem) {
  Context context = make_context(2);
  context.profile = std::make_shared<Profile>();
  const mx::array x = random_array({4, 64}, mx::float32, 1);
  const mx::array weight = random_array({64}, mx::float32, 2);
  context.profile->begin(kDecode);
  mx::array y = rms_norm(context, x, weight, 1e-6f);
  mx::async_eval(y);
  context.profile->begin(kPrefill);
  y = rms_norm(context, rms_norm(context, y, weight, 1e-6f), weight, 1e-6f);
  mx::eval(y);
  const auto steps = context.profile->take();
  ASSERT_EQ(steps.size(), 2u);
  const KernelKey key{.name = std::string("rms_norm/") + cpu_kernel_name()};
  ASSERT_TRUE(steps.at(kDecode).kernels.contains(key));
  EXPECT_EQ(steps.at(kDecode).kernels.at(key).count, 1);
  EXPECT_EQ(steps.at(kPrefill).kernels.at(key).count, 2);
  const KernelTime& time = steps.at(kDecode).kernels.at(key);
  EXPECT_EQ(time.bytes, 4.0 * (2 * 4 * 64 + 64));  // x, weight and y
  EXPECT_GT(time.seconds, 0);
  EXPECT_LT(time.seconds, 120);
  EXPECT_TRUE(context.profile->take().empty());
}

TEST(Profile, TellsMatricesApartAndCountsTheirBytes) {
  Context context = make_context(1);
  context.profile = std::make_shared<Profile>();
  const mx::array rows = random_array({32, 64}, mx::bfloat16, 1);
  mx::eval(rows);
  const RowMatrix source{.data = rows.data<void>(), .n = 32, .k = 64, .dtype = mx::bfloat16};
  const LinearWeight weight{.weight = pack_matrix(context, {&source, 1}, mx::bfloat16)};
  mx::eval(
      linear(context, random_array({2, 64}, mx::bfloat16, 2), weight, {.out_dtype = mx::float32}));
  const auto steps = context.profile->take();
  ASSERT_EQ(steps.size(), 1u);
  const auto& [key, time] = *steps.begin()->second.kernels.begin();
  EXPECT_EQ(key.width, 32);
  EXPECT_EQ(key.k, 64);
  EXPECT_EQ(time.bytes, 2.0 * 32 * 64 + 2 * 2 * 64 + 4 * 2 * 32);
}

TEST(Profile, AddsUpPhasesAndSteps) {
  Profile profile;
  profile.add_phase(kDecode, Phase::kPlan, {.wall = 1, .cpu = 0.25});
  profile.add_phase(kDecode, Phase::kWait, {.wall = 2, .cpu = 0.125});
  profile.add_phase(kDecode, Phase::kPlan, {.wall = 2, .cpu = 0.5});
  profile.add_step(kDecode, 3, 1.5);
  profile.add_kernel(kDecode, {.name = "a"}, 0.5, 100);
  profile.add_kernel(kDecode, {.name = "b"}, 0.25, 100);
  const auto steps = profile.take();
  const StepProfile& step = steps.at(kDecode);
  EXPECT_EQ(step.steps, 1);
  EXPECT_EQ(step.tokens, 3);
  EXPECT_EQ(step.wall, 1.5);
  EXPECT_EQ(step.phases[0].wall, 3);
  EXPECT_EQ(step.host_seconds(), 0.875);  // waiting costs next to no CPU
  EXPECT_EQ(step.kernel_seconds(), 0.75);
}

}  // namespace
}  // namespace quire::ops
