#include "formats/data_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <functional>

#include "formats/pending_folder.h"
#include "formats/safetensors.h"
#include "formats/staged_tensor.h"
#include "formats/test_files.h"

namespace quire::formats {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::load_error;
using testing::TempDir;
using ::testing::UnorderedElementsAre;

TEST(DataFile, ReadsWhereItIsAskedTo) {
  TempDir dir;
  const auto file = DataFile::open(dir.write("f", "0123456789"));
  std::array<std::byte, 3> bytes{};
  file->read(7, bytes);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), 3), "789");
  EXPECT_EQ(file->size(), 10u);
  file->check_unchanged();
}

TEST(DataFile, AFileThatWasCutIsNamed) {
  TempDir dir;
  const std::string path = dir.write("f", "0123456789");
  const auto file = DataFile::open(path);
  ASSERT_EQ(::truncate(path.c_str(), 8), 0);
  std::array<std::byte, 4> bytes{};
  EXPECT_THAT(load_error([&] { file->read(6, bytes); }),
              AllOf(HasSubstr(path), HasSubstr("ends at byte 8 of 10")));
}

TEST(DataFile, EveryChangeIsSeen) {
  const auto error_after = [](const std::function<void(const std::string&)>& change) {
    TempDir dir;
    const std::string path = dir.write("f", "0123456789");
    const auto file = DataFile::open(path);
    ::usleep(20'000);  // times of files have the resolution of the system's clock tick
    change(path);
    return load_error([&] { file->check_unchanged(); });
  };
  const auto says_so = HasSubstr("was changed while it was being read");
  EXPECT_THAT(error_after([](const std::string& path) {
                std::fstream(path, std::ios::in | std::ios::out) << "x";  // same length
              }),
              says_so);
  EXPECT_THAT(
      error_after([](const std::string& path) { EXPECT_EQ(::truncate(path.c_str(), 5), 0); }),
      says_so);
  EXPECT_THAT(error_after([](const std::string& path) { ::unlink(path.c_str()); }), says_so);
  EXPECT_THAT(error_after([](const std::string& path) {
                std::ofstream(path + ".new") << "0123456789";
                std::filesystem::rename(path + ".new", path);
              }),
              says_so);
}

// A large tensor in pieces, on several threads; what was released is gone.
TEST(StagedTensor, LoadsAndReleasesRanges) {
  TempDir dir;
  constexpr size_t kSize = 5 << 20;
  const std::string header = R"({"t":{"dtype":"U8","shape":[5242880],"data_offsets":[0,5242880]}})";
  const auto file =
      SafetensorsFile::open(dir.write("m", testing::safetensors_bytes(header, kSize)));
  StagedTensor staged(file.tensors().front());
  ThreadPool pool(3);
  constexpr size_t kBegin = 12345, kEnd = 4 << 20;
  staged.load({staged.data() + kBegin, kEnd - kBegin}, pool);
  const auto holds = [&](size_t i) { return staged.data()[i] == static_cast<std::byte>(i); };
  for (size_t i = 0; i < kSize; ++i) {
    if (i % 256 == 0) continue;  // zero in the file, too
    ASSERT_EQ(holds(i), i >= kBegin && i < kEnd) << i;
  }
  constexpr size_t kGone = 1 << 20;
  staged.release({staged.data() + kBegin, kGone});
  EXPECT_EQ(staged.data()[(kBegin + kGone / 2) | 1], std::byte{0});
  EXPECT_TRUE(holds(kBegin + kGone + 1));
}

TEST(PendingFolder, AppearsWholeOrNotAtAll) {
  TempDir dir;
  const std::string target = dir.path() + "/q/";
  const auto names = [&] {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
      found.push_back(entry.path().filename());
    return found;
  };
  {
    const PendingFolder given_up(target);
  }
  EXPECT_THAT(names(), UnorderedElementsAre());
  {
    PendingFolder folder(target);
    std::ofstream(folder.path() + "/file") << "x";
    EXPECT_THAT(names(), UnorderedElementsAre(".q.quire-partial", ".q.quire-lock"));
    EXPECT_THAT(load_error([&] { PendingFolder other(target); }), HasSubstr("another process"));
    folder.commit();
  }
  EXPECT_THAT(names(), UnorderedElementsAre("q"));
  EXPECT_THAT(load_error([&] { PendingFolder other(target); }), HasSubstr("exists already"));
  EXPECT_THAT(names(), UnorderedElementsAre("q"));
}

TEST(PendingFolder, RemovesWhatAKilledRunLeft) {
  TempDir dir;
  std::filesystem::create_directories(dir.path() + "/.q.quire-partial/deeper");
  dir.write(".q.quire-lock", "");
  dir.write(".q.quire-partial/model.safetensors", "half");
  PendingFolder folder(dir.path() + "/q");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace quire::formats
