#include "formats/file_snapshot.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "formats/checkpoint.h"
#include "formats/data_file.h"
#include "formats/staged_tensor.h"
#include "formats/test_files.h"

namespace quire::formats {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::load_error;
using testing::TempDir;

std::string text_of(const FileSnapshot& snapshot) {
  return {reinterpret_cast<const char*>(snapshot.bytes().data()), snapshot.bytes().size()};
}

// Some pages, the last one in part.
std::string some_pages() {
  std::string text;
  for (int i = 0; text.size() < 50'000; ++i) text += std::to_string(i) + " ";
  return text;
}

// The file system that QUIRE_TEST_CLONE_DIR names must do it; others may not, and then say so.
TEST(FileSnapshot, StaysWhateverBecomesOfTheFile) {
  TempDir dir(testing::folder_for_clones());
  const std::string text = some_pages(), path = dir.write("f", text);
  const auto taken = DataFile::open(path)->snapshot();
  if (!taken) {
    EXPECT_EQ(std::getenv("QUIRE_TEST_CLONE_DIR"), nullptr) << taken.error();
    EXPECT_THAT(taken.error(), AllOf(HasSubstr(path), HasSubstr("does not clone files")));
    GTEST_SKIP() << taken.error();
  }
  const FileSnapshot& snapshot = **taken;
  std::fstream(path, std::ios::in | std::ios::out) << "other bytes";
  EXPECT_EQ(text_of(snapshot), text);
  ASSERT_EQ(::truncate(path.c_str(), 10), 0);
  EXPECT_EQ(text_of(snapshot), text);
  fs::remove(path);
  EXPECT_EQ(text_of(snapshot), text);
  EXPECT_TRUE(fs::is_empty(dir.path())) << "the clone has a name";
  for (const auto& fd : fs::directory_iterator("/dev/fd")) {
    std::error_code ignored;
    EXPECT_EQ(fs::read_symlink(fd.path(), ignored).string().find(dir.path()), std::string::npos)
        << "the clone is open";
  }
}

TEST(FileSnapshot, IsOfNoFileThatHasAName) {
  TempDir dir;
  const std::string path = dir.write("f", "0123456789");
  const int file = ::open(path.c_str(), O_RDONLY);
  const auto taken = FileSnapshot::map(file);
  ::close(file);
  ASSERT_FALSE(taken);
  EXPECT_THAT(taken.error(), HasSubstr("has a name"));
}

// Whatever the file system can.
TEST(FileSnapshot, IsNotTakenOfAFileThatHasChanged) {
  TempDir dir(testing::folder_for_clones());
  const std::string path = dir.write("f", "0123456789");
  const auto file = DataFile::open(path);
  ::usleep(20'000);  // times of files have the resolution of the system's clock tick
  std::fstream(path, std::ios::in | std::ios::out) << "x";
  EXPECT_THAT(load_error([&] { (void)file->snapshot(); }),
              AllOf(HasSubstr(path), HasSubstr("was changed while it was being read")));
}

// A model folder with one tensor of some blocks of the digest.
struct Folder {
  Folder() {
    constexpr size_t kSize = 5 << 20;
    const std::string header =
        R"({"t":{"dtype":"U8","shape":[5242880],"data_offsets":[0,5242880]}})";
    dir.write("model.safetensors", testing::safetensors_bytes(header, kSize));
    dir.write("config.json",
              R"({"architectures":["A"],"model_type":"a","hidden_size":8,"vocab_size":8,)"
              R"("num_hidden_layers":1,"num_attention_heads":1,"max_position_embeddings":8})");
  }
  TempDir dir;
};

// The bytes are in the snapshot from the start, are not given back, and count as if they were read.
TEST(StagedTensor, OfASnapshotStaysAndCounts) {
  const Folder folder;
  ThreadPool pool(3);
  const auto digest_of = [&](bool mapped) {
    Checkpoint checkpoint = Checkpoint::open(folder.dir.path());
    checkpoint.record_contents();
    const RawTensor& tensor = *checkpoint.find("t");
    const auto snapshot = testing::copied_snapshot(*tensor.source);
    EXPECT_TRUE(snapshot) << snapshot.error();
    StagedTensor staged = mapped ? StagedTensor(tensor, *snapshot) : StagedTensor(tensor);
    if (mapped) {
      EXPECT_EQ(staged.data(), (*snapshot)->bytes().data() + tensor.begin);
      EXPECT_EQ(staged.data()[12345], std::byte{12345 % 256});
    }
    const std::span<const std::byte> range(staged.data() + 12345, size_t{4} << 20);
    staged.load(range, pool);
    staged.release(range);
    if (mapped) {
      EXPECT_EQ(staged.data()[12345], std::byte{12345 % 256});
    }
    EXPECT_TRUE(tensor.digest->is_begun());
    return checkpoint.contents_digest();
  };
  EXPECT_EQ(digest_of(true), digest_of(false));
}

}  // namespace
}  // namespace quire::formats
