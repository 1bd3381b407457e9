// Which device --device takes, by what the machine has and what else is asked for.
#include "cli/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace quire::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StrEq;
using ::testing::ThrowsMessage;

const ops::CudaSupport kGpu{.is_usable = true, .is_there = true, .reason = ""};
const ops::CudaSupport kOldDriver{
    .is_usable = false, .is_there = true, .reason = "the driver is too old"};
const ops::CudaSupport kNoDriver{
    .is_usable = false, .is_there = false, .reason = "no driver is installed"};

DeviceChoice choose(const std::string& asked, const ops::CudaSupport& support,
                    const std::vector<std::string>& cpu_only = {}) {
  return choose_device(asked, cpu_only, [&] { return support; });
}

TEST(DeviceChoice, TheCpuIsTakenWithoutAskingADriver) {
  const auto choice = choose_device("cpu", {"--portable-bits"}, []() -> ops::CudaSupport {
    ADD_FAILURE() << "a driver was asked";
    return {};
  });
  EXPECT_FALSE(choice.is_cuda);
  EXPECT_THAT(choice.notice, IsEmpty());
}

TEST(DeviceChoice, AutoTakesAGpuThatCan) {
  EXPECT_TRUE(choose("auto", kGpu).is_cuda);
  EXPECT_TRUE(choose("cuda", kGpu).is_cuda);
  EXPECT_FALSE(choose("auto", kNoDriver).is_cuda);
  EXPECT_THAT(choose("auto", kNoDriver).notice, IsEmpty());
}

TEST(DeviceChoice, AutoSaysWhyAGpuThatIsThereIsNotTaken) {
  const auto choice = choose("auto", kOldDriver);
  EXPECT_FALSE(choice.is_cuda);
  EXPECT_THAT(choice.notice, StrEq("the GPU is not used: the driver is too old"));
}

TEST(DeviceChoice, CudaThatCannotBeHadIsAnErrorWithTheReason) {
  for (const auto& support : {kOldDriver, kNoDriver})
    EXPECT_THAT([&] { choose("cuda", support); },
                ThrowsMessage<LoadError>(StrEq("--device cuda: " + support.reason)));
}

TEST(DeviceChoice, AnAppleGpuIsTakenIfAskedFor) {
  const auto no_driver = []() -> ops::CudaSupport {
    ADD_FAILURE() << "a driver was asked";
    return {};
  };
  EXPECT_TRUE(choose_device("metal", {}, no_driver).is_metal);
  EXPECT_FALSE(choose("auto", kNoDriver).is_metal);
  EXPECT_THAT([&] { choose_device("metal", {"--profile"}, no_driver); },
              ThrowsMessage<LoadError>(HasSubstr("--device metal: only the CPU has --profile")));
}

TEST(DeviceChoice, WhatOnlyTheCpuHasIsRefusedByNameOnCuda) {
  EXPECT_THAT([] { choose("cuda", kGpu, {"--portable-bits", "--quant-activations"}); },
              ThrowsMessage<LoadError>(HasSubstr("--portable-bits, --quant-activations")));
}

TEST(DeviceChoice, WhatOnlyTheCpuHasMakesAutoTakeTheCpu) {
  const auto choice = choose("auto", kGpu, {"--portable-bits"});
  EXPECT_FALSE(choice.is_cuda);
  EXPECT_THAT(choice.notice, HasSubstr("--portable-bits"));
  EXPECT_THAT(choose("auto", kNoDriver, {"--portable-bits"}).notice, IsEmpty());
}

}  // namespace
}  // namespace quire::cli
