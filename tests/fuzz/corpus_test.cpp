// Replays the committed corpora without libFuzzer: a finding that was mended stays mended.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/source_dir.h"

// Each fuzzer's LLVMFuzzerTestOneInput under another name (CMakeLists.txt).
extern "C" {
int fuzz_chat(const uint8_t* data, size_t size);
int fuzz_chat_template(const uint8_t* data, size_t size);
int fuzz_dialects(const uint8_t* data, size_t size);
int fuzz_gguf(const uint8_t* data, size_t size);
int fuzz_grammar(const uint8_t* data, size_t size);
int fuzz_hf_config(const uint8_t* data, size_t size);
int fuzz_http(const uint8_t* data, size_t size);
int fuzz_json(const uint8_t* data, size_t size);
int fuzz_json_schema(const uint8_t* data, size_t size);
int fuzz_safetensors(const uint8_t* data, size_t size);
int fuzz_scheduler(const uint8_t* data, size_t size);
int fuzz_sse(const uint8_t* data, size_t size);
int fuzz_stop_strings(const uint8_t* data, size_t size);
int fuzz_tokenizer(const uint8_t* data, size_t size);
}

namespace quire {
namespace {

namespace fs = std::filesystem;

struct Fuzzer {
  const char* name;
  int (*play)(const uint8_t* data, size_t size);
};

constexpr Fuzzer kFuzzers[] = {
    {"chat", fuzz_chat},
    {"chat_template", fuzz_chat_template},
    {"dialects", fuzz_dialects},
    {"gguf", fuzz_gguf},
    {"grammar", fuzz_grammar},
    {"hf_config", fuzz_hf_config},
    {"http", fuzz_http},
    {"json", fuzz_json},
    {"json_schema", fuzz_json_schema},
    {"safetensors", fuzz_safetensors},
    {"scheduler", fuzz_scheduler},
    {"sse", fuzz_sse},
    {"stop_strings", fuzz_stop_strings},
    {"tokenizer", fuzz_tokenizer},
};

fs::path corpora() { return fs::path(source_dir()) / "tests/fuzz/corpus"; }

std::vector<fs::path> in_order(const fs::path& folder) {
  std::vector<fs::path> paths(fs::directory_iterator(folder), fs::directory_iterator{});
  std::ranges::sort(paths);
  return paths;
}

std::vector<uint8_t> bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

class Corpus : public testing::TestWithParam<Fuzzer> {};

// A failure ends the process: the last name is the input's.
TEST_P(Corpus, IsReplayed) {
  const auto inputs = in_order(corpora() / GetParam().name);
  EXPECT_FALSE(inputs.empty());
  for (const fs::path& path : inputs) {
    std::printf("%s\n", path.filename().c_str());
    std::fflush(stdout);
    const auto bytes = bytes_of(path);
    EXPECT_EQ(GetParam().play(bytes.data(), bytes.size()), 0);
  }
  EXPECT_EQ(GetParam().play(nullptr, 0), 0);  // as libFuzzer begins
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Corpus, testing::ValuesIn(kFuzzers),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Corpora, AreAllReplayed) {
  std::vector<std::string> folders, names;
  for (const fs::path& path : in_order(corpora())) folders.push_back(path.filename());
  for (const Fuzzer& fuzzer : kFuzzers) names.push_back(fuzzer.name);
  EXPECT_EQ(folders, names);
}

}  // namespace
}  // namespace quire
