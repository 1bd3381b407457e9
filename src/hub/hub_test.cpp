#include <gtest/gtest.h>

#include <ctime>
#include <map>

#include "base/error.h"
#include "formats/test_files.h"
#include "hub/blob_hash.h"
#include "hub/cache.h"
#include "hub/explain.h"
#include "hub/model_id.h"
#include "hub/needed_files.h"
#include "hub/settings.h"

namespace quire::hub {
namespace {

using formats::testing::TempDir;

template <class F>
std::string error_of(F&& call) {
  try {
    call();
  } catch (const LoadError& error) {
    return error.what();
  }
  return "";
}

TEST(ModelId, ReadsNamesAndRevisions) {
  const auto id = parse_model_id("Qwen/Qwen3-0.6B");
  ASSERT_TRUE(id);
  EXPECT_EQ(id->repo(), "Qwen/Qwen3-0.6B");
  EXPECT_EQ(id->revision, "main");
  EXPECT_EQ(id->folder(), "models--Qwen--Qwen3-0.6B");
  EXPECT_EQ(id->text(), "Qwen/Qwen3-0.6B");
  EXPECT_EQ(parse_model_id("a/b@refs/pr/1")->revision, "refs/pr/1");
  EXPECT_EQ(parse_model_id("a/b@v1.0")->text(), "a/b@v1.0");
  EXPECT_EQ(parse_cache_folder("models--a--b-c")->repo(), "a/b-c");
}

TEST(ModelId, RefusesWhatIsAPathOrLeadsElsewhere) {
  for (const char* text :
       {"",       "gpt2",     "a/b/c",   "/a/b",    "./a",     "../a",   "a/..",     "a/.b",
        "a/b.",   "-a/b",     "a--b/c",  "a/b..c",  "a/b.git", "a/b@",   "a/b@../x", "a/b@x//y",
        "a/b@/x", "a/b@x/..", "a/b@x y", "~/model", "a/b\n",   "a\\b/c", "a/b?x",    "a/b%2e"})
    EXPECT_FALSE(parse_model_id(text)) << text;
  for (const char* folder :
       {"datasets--a--b", "models--a", "models--..--b", "blobs", "models----b"})
    EXPECT_FALSE(parse_cache_folder(folder)) << folder;
}

TEST(ModelId, KnowsSafePaths) {
  for (const char* path : {"config.json", "1_Pooling/config.json", "a b.json", "..a", "a.."})
    EXPECT_TRUE(is_safe_path(path)) << path;
  for (const char* path :
       {"", "/etc/passwd", "../x", "a/../x", "a//b", "a/", "C:\\x", "a\\..\\x", ".", "x\ny", "C:x"})
    EXPECT_FALSE(is_safe_path(path)) << path;
}

Settings settings_of(std::map<std::string, std::string> variables) {
  if (!variables.contains("HOME")) variables["HOME"] = "/home/me";
  return read_settings(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      "test");
}

TEST(Settings, FollowsTheVariablesOfHuggingfaceHub) {
  EXPECT_EQ(settings_of({}).endpoint, "https://huggingface.co");
  EXPECT_EQ(settings_of({}).cache, "/home/me/.cache/huggingface/hub");
  EXPECT_EQ(settings_of({{"XDG_CACHE_HOME", "/x"}}).cache, "/x/huggingface/hub");
  EXPECT_EQ(settings_of({{"XDG_CACHE_HOME", "/x"}, {"HF_HOME", "~/hf"}}).cache, "/home/me/hf/hub");
  EXPECT_EQ(settings_of({{"HF_HOME", "/h"}, {"HUGGINGFACE_HUB_CACHE", "/old"}}).cache, "/old");
  EXPECT_EQ(settings_of({{"HF_HUB_CACHE", "$A/${B}/c"}, {"A", "/a"}, {"B", "b"}}).cache, "/a/b/c");
  EXPECT_EQ(settings_of({{"HF_ENDPOINT", "http://mirror:8080//"}}).endpoint, "http://mirror:8080");
  EXPECT_TRUE(settings_of({{"HF_HUB_OFFLINE", "yes"}}).offline);
  EXPECT_FALSE(settings_of({{"HF_HUB_OFFLINE", "0"}}).offline);
  EXPECT_EQ(settings_of({{"HF_TOKEN", " hf_a\n"}}).token, "hf_a");
  EXPECT_EQ(settings_of({{"HUGGING_FACE_HUB_TOKEN", "hf_b"}}).token, "hf_b");
  EXPECT_EQ(settings_of({{"HF_TOKEN", "hf_a"}, {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"}}).token, "");
}

TEST(Settings, ReadsTheTokenFile) {
  const TempDir home;
  home.write("token", "hf_file\n");
  EXPECT_EQ(settings_of({{"HF_HOME", home.path()}}).token, "hf_file");
  EXPECT_EQ(settings_of({{"HF_HOME", home.path()}, {"HF_TOKEN", "hf_a"}}).token, "hf_a");
  EXPECT_EQ(settings_of({{"HF_TOKEN_PATH", home.path() + "/token"}}).token, "hf_file");
}

TEST(Settings, FindsTheSystemsCertificates) {
  const TempDir dir;
  const std::string first = dir.path() + "/first", second = dir.path() + "/second";
  EXPECT_EQ(find_certificates({first, second}), "");
  dir.write("second", "-----BEGIN CERTIFICATE-----\n");
  EXPECT_EQ(find_certificates({first, second}), second);
  std::filesystem::create_directory(first);  // no file
  EXPECT_EQ(find_certificates({first, second}), second);
  std::filesystem::remove(first);
  dir.write("first", "-----BEGIN CERTIFICATE-----\n");
  EXPECT_EQ(find_certificates({first, second}), first);
}

TEST(Settings, RefusesWhatCannotBeMeant) {
  for (const char* endpoint :
       {"huggingface.co", "ftp://x", "https://", "https://a@b", "https://a b", "https://a?b"})
    EXPECT_NE(error_of([&] { settings_of({{"HF_ENDPOINT", endpoint}}); }).find("HF_ENDPOINT"),
              std::string::npos)
        << endpoint;
  // A token that would become a line of its own in a request.
  EXPECT_NE(error_of([] { settings_of({{"HF_TOKEN", "a\r\nX: y z"}}); }).find("HF_TOKEN"),
            std::string::npos);
  EXPECT_NE(error_of([] { settings_of({{"HF_HUB_DOWNLOAD_TIMEOUT", "soon"}}); }).find("TIMEOUT"),
            std::string::npos);
}

// The values are those of `git hash-object` and `sha256sum`.
TEST(BlobHash, IsThatOfGitAndOfSha256sum) {
  const std::string text = "what is up, doc?";
  BlobHash git("bd9dbf5aae1a3862dd1526723246b20206e5fc37", text.size());
  git.add(std::string_view(text).substr(0, 5));
  git.add(std::string_view(text).substr(5));
  EXPECT_EQ(git.finish(), "bd9dbf5aae1a3862dd1526723246b20206e5fc37");
  BlobHash sha(std::string(64, '0'), 3);
  sha.add(std::string_view("xyz"));
  sha.restart();
  sha.add(std::string_view("abc"));
  EXPECT_EQ(sha.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  for (const char* etag : {"", "abc", "../../../../../../../../../../etc/cron.d/x"})
    EXPECT_FALSE(BlobHash::is_known(etag));
  EXPECT_FALSE(BlobHash::is_known(std::string(40, 'g')));
}

TEST(NeededFiles, TakesNoDuplicates) {
  const ModelId id = *parse_model_id("a/b");
  const std::vector<std::string> names = {".gitattributes",       "README.md",
                                          "config.json",          "generation_config.json",
                                          "tokenizer.json",       "tokenizer.model",
                                          "model.safetensors",    "consolidated.safetensors",
                                          "original/x.pth",       "pytorch_model.bin",
                                          "onnx/model.onnx",      "chat_template.jinja",
                                          "vocab.json",           "merges.txt",
                                          "hf_quant_config.json", "quant_config.json",
                                          "quantize_config.json"};
  const NeededFiles needed = choose_files(id, names);
  EXPECT_EQ(needed.weights, std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(needed.small, (std::vector<std::string>{"config.json", "generation_config.json",
                                                    "hf_quant_config.json", "quantize_config.json",
                                                    "quant_config.json", "tokenizer.json",
                                                    "chat_template.jinja"}));
}

TEST(NeededFiles, SaysWhyAndTheWayOut) {
  const ModelId id = *parse_model_id("a/b");
  const auto why = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"config.json", "tokenizer.json"});
    return error_of([&] { choose_files(id, more); });
  };
  EXPECT_NE(why({"model.Q4_K_M.gguf"}).find("GGUF"), std::string::npos);
  EXPECT_NE(why({"pytorch_model.bin"}).find("safetensors/convert"), std::string::npos);
  EXPECT_NE(why({"adapter_config.json", "adapter_model.safetensors"}).find("adapter"),
            std::string::npos);
  EXPECT_NE(why({"consolidated.safetensors"}).find("transformers"), std::string::npos);
  EXPECT_NE(why({"onnx/model.onnx"}).find("ONNX"), std::string::npos);
  EXPECT_NE(why({"unet.safetensors"}).find("no language model"), std::string::npos);
  EXPECT_NE(why({}).find("no weights"), std::string::npos);
  EXPECT_NE(error_of([&] {
              choose_files(id, {"model.safetensors", "config.json", "tokenizer.model"});
            }).find("save_pretrained"),
            std::string::npos);
}

TEST(NeededFiles, ShardsArePlainNamesOfTheRepository) {
  const TempDir dir;
  const auto shards = [&](const std::string& shard) {
    const std::string path = dir.write(
        "index.json", R"({"weight_map": {"a": ")" + shard + R"(", "b": "x.safetensors"}})");
    return error_of([&] {
      EXPECT_EQ(shards_of(path, {"x.safetensors", "y.safetensors", "../up", "a/b.safetensors"}),
                (std::vector<std::string>{"x.safetensors", "y.safetensors"}));
    });
  };
  EXPECT_EQ(shards("y.safetensors"), "");
  for (const char* shard : {"../up", "a/b.safetensors", "/etc/passwd", "..", ""})
    EXPECT_NE(shards(shard).find("plain file name"), std::string::npos) << shard;
  EXPECT_NE(shards("z.safetensors").find("does not have"), std::string::npos);
}

TEST(Explain, ReadsHowLongToWait) {
  const auto asked = [](const char* name, const std::string& value) {
    Response response;
    response.headers[name] = value;
    const auto wait = asked_wait(response);
    return wait ? wait->count() : -1;
  };
  EXPECT_EQ(asked("retry-after", "7"), 7);
  EXPECT_EQ(asked("ratelimit", "\"resolvers\";r=0;t=137"), 137);
  EXPECT_EQ(asked("other", "7"), -1);
  char date[64];
  const time_t soon = std::time(nullptr) + 30;
  std::strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", std::gmtime(&soon));
  EXPECT_NEAR(asked("retry-after", date), 30, 2);
  EXPECT_EQ(asked("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"), 0);
}

TEST(Explain, WritesSizesAndTimes) {
  EXPECT_EQ(bytes_text(17), "17 bytes");
  EXPECT_EQ(bytes_text(1503300328), "1.5 GB");
  EXPECT_EQ(bytes_text(311e6), "311 MB");
  EXPECT_EQ(duration_text(11.2), "12 s");
  EXPECT_EQ(duration_text(200), "3 min 20 s");
  EXPECT_EQ(duration_text(7800), "2 h 10 min");
}

TEST(BlobLock, IsOneProcessAtATime) {
  const TempDir dir;
  const std::string path = dir.path() + "/x.lock";
  BlobLock second(path);
  {
    BlobLock first(path);
    EXPECT_TRUE(first.try_take());
    EXPECT_FALSE(second.try_take());
    // Whoever has it may take the file away.
    std::filesystem::remove(path);
  }
  EXPECT_TRUE(second.try_take());
}

}  // namespace
}  // namespace quire::hub
