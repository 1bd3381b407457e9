// Tokenizers and chat templates that were made to cost minutes or gigabytes: a load ends soon, with
// an error that names the file where there is something to refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "base/error.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quire::text {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string repeat(const std::string& piece, int count, const std::string& separator = ",") {
  std::string out;
  for (int i = 0; i < count; ++i) out += (i ? separator : "") + piece;
  return out;
}

// A tokenizer.json with more keys beside its model, each followed by a comma.
std::string tokenizer(const std::string& more) {
  return R"({"version":"1.0",)" + more +
         R"("model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})";
}

std::string sequence(const std::string& list, const std::string& steps) {
  return R"({"type":"Sequence",")" + list + "\":[" + steps + "]}";
}

constexpr const char* kAddedA =
    R"("added_tokens":[{"id":2,"content":"aaaa","single_word":false,"lstrip":false,"rstrip":false,)"
    R"("normalized":true,"special":false}],)";
constexpr const char* kDouble = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";

class HostileFiles : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(dir_); }
  void TearDown() override {
    std::filesystem::remove_all(dir_);
    // Far above what a load takes, far below what it would take without limits.
    EXPECT_LT(std::chrono::steady_clock::now() - started_, std::chrono::seconds(120));
  }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ / name) << text;
  }
  template <class Load>
  std::string error_of(Load load) {
    try {
      load();
      return "no error";
    } catch (const LoadError& e) {
      return e.what();
    }
  }
  std::string tokenizer_error(const std::string& more) {
    write("tokenizer.json", tokenizer(more));
    return error_of([&] { Tokenizer::load(dir_); });
  }
  std::string template_error() {
    return error_of([&] { ChatTemplate::load(dir_); });
  }
  auto names(const char* file) { return HasSubstr((dir_ / file).string()); }

  std::filesystem::path dir_ =
      std::filesystem::path(testing::TempDir()) /
      (std::string("hostile_") + testing::UnitTest::GetInstance()->current_test_info()->name());
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

TEST_F(HostileFiles, PipelinesThatMultiplyTextsAreRefused) {
  const std::string doubling = repeat(kDouble, 40);
  const std::string bytes =
      repeat(R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
             R"("use_regex":false})",
             20);
  const std::string prepend = R"({"type":"Prepend","prepend":"aaaaaaa"})";
  const std::string nested = sequence("normalizers", repeat(prepend, 4));
  const std::string anywhere =
      R"({"type":"Replace","pattern":{"Regex":"x*"},"content":")" + std::string(300, 'a') + "\"}";
  const auto refused = AllOf(names("tokenizer.json"), HasSubstr("the limit is"));
  const auto with = [](const std::string& key, const std::string& value) {
    return kAddedA + ("\"" + key + "\":" + value + ",");
  };
  EXPECT_THAT(tokenizer_error(with("normalizer", sequence("normalizers", doubling))), refused);
  EXPECT_THAT(tokenizer_error(with("normalizer", sequence("normalizers", nested))), refused);
  EXPECT_THAT(tokenizer_error(with("normalizer", anywhere)), refused);
  EXPECT_THAT(tokenizer_error(with("pre_tokenizer", sequence("pretokenizers", bytes))), refused);
  EXPECT_THAT(tokenizer_error(with("decoder", sequence("decoders", doubling))), refused);
  const std::string idle = R"({"type":"Replace","pattern":{"String":"q"},"content":"q"})";
  EXPECT_THAT(tokenizer_error(with("normalizer", sequence("normalizers", repeat(idle, 70)))),
              AllOf(names("tokenizer.json"), HasSubstr("more than 64 steps")));
}

TEST_F(HostileFiles, PostProcessorsThatMultiplyTokensAreRefused) {
  const std::string text = R"({"Sequence":{"id":"A","type_id":0}})";
  const std::string token = R"({"SpecialToken":{"id":"b","type_id":0}})";
  const auto processor = [](const std::string& single, const std::string& ids) {
    return R"("post_processor":{"type":"TemplateProcessing","single":[)" + single +
           R"(],"pair":[],"special_tokens":{"b":{"id":"b","ids":[)" + ids +
           R"(],"tokens":["b"]}}},)";
  };
  EXPECT_THAT(tokenizer_error(processor(repeat(text, 9), "1")),
              AllOf(names("tokenizer.json"), HasSubstr("repeats the text 9 times")));
  EXPECT_THAT(tokenizer_error(processor(repeat(token, 1000), "1")),
              AllOf(names("tokenizer.json"), HasSubstr("1000 pieces")));
  EXPECT_THAT(tokenizer_error(processor(text, repeat("1", 1000))),
              AllOf(names("tokenizer.json"), HasSubstr("makes 1000 tokens")));
}

TEST_F(HostileFiles, UsualPipelinesAreTaken) {
  const char* const llama =
      R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
      R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]},)"
      R"("decoder":{"type":"Sequence","decoders":[)"
      R"({"type":"Replace","pattern":{"String":"▁"},"content":" "},{"type":"ByteFallback"},)"
      R"({"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},)";
  EXPECT_EQ(tokenizer_error(llama), "no error");
  EXPECT_EQ(tokenizer_error(R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},)"
                            R"({"type":"Lowercase"},{"type":"StripAccents"}]},)"),
            "no error");
}

TEST_F(HostileFiles, HundredsOfThousandsOfAddedTokensAreRefused) {
  std::string list, declared;
  for (int i = 0; i < 500'000; ++i) {
    const std::string token = "{\"content\":\"<" + std::to_string(i) +
                              ">\",\"single_word\":false," +
                              R"("lstrip":false,"rstrip":false,"normalized":false,"special":true)";
    list += (i ? "," : "") + token + ",\"id\":" + std::to_string(i + 2) + "}";
    // Short, so that the file stays below its limit.
    declared += std::string(i ? "," : "") + "\"" + std::to_string(i + 2) + "\":\"" +
                std::to_string(i) + "\"";
  }
  EXPECT_THAT(tokenizer_error("\"added_tokens\":[" + list + "],"),
              AllOf(names("tokenizer.json"), HasSubstr("500000 added tokens")));
  write("tokenizer_config.json", "{\"added_tokens_decoder\":{" + declared + "}}");
  EXPECT_THAT(tokenizer_error(""),
              AllOf(names("tokenizer_config.json"), HasSubstr("added tokens are over the limit")));
}

// Comparing each with each would take minutes.
TEST_F(HostileFiles, AHundredThousandAddedTokensTakeSeconds) {
  std::string declared, extra;
  for (int i = 0; i < 60'000; ++i) {
    declared += std::string(i ? "," : "") + "\"" + std::to_string(i + 2) + "\":\"<" +
                std::to_string(i) + ">\"";
    extra += std::string(i ? "," : "") + "\"[" + std::to_string(i) + "]\"";
  }
  write("tokenizer_config.json", "{\"added_tokens_decoder\":{" + declared +
                                     "},\"additional_special_tokens\":[" + extra + "]}");
  write("tokenizer.json", tokenizer(""));
  EXPECT_EQ(Tokenizer::load(dir_)->vocab_size(), 120'002);
}

TEST_F(HostileFiles, OfThousandsOfTemplatesTheNamedOnesAreCompiled) {
  const std::string body =
      repeat("{% if messages %}{{ messages[0]['content'] }}{% endif %}", 20, "");
  std::string list;
  for (int i = 0; i < 10'000; ++i) {
    list += R"({"name":"t)" + std::to_string(i) + R"(","template":")" + body + "\"},";
  }
  list += R"({"name":"default","template":"chosen: {{ messages[0]['content'] }}"})";
  write("tokenizer_config.json", R"({"chat_template":[)" + list + "]}");
  const auto loaded = ChatTemplate::load(dir_);
  ASSERT_NE(loaded, nullptr);
  const auto text = loaded->render({.messages = R"([{"role":"user","content":"x"}])"});
  ASSERT_TRUE(text.ok()) << text.error();
  EXPECT_EQ(*text, "chosen: x");
}

TEST_F(HostileFiles, HugeFilesAreRefusedUnread) {
  write("chat_template.jinja", std::string(2 << 20, ' '));
  EXPECT_THAT(template_error(), AllOf(names("chat_template.jinja"), HasSubstr("longer than")));
  std::filesystem::resize_file(dir_ / "chat_template.jinja", uint64_t{1} << 40);
  EXPECT_THAT(template_error(), AllOf(names("chat_template.jinja"), HasSubstr("the limit is")));
  std::filesystem::remove(dir_ / "chat_template.jinja");
  write("tokenizer_config.json", "{");
  std::filesystem::resize_file(dir_ / "tokenizer_config.json", uint64_t{1} << 40);
  EXPECT_THAT(template_error(), AllOf(names("tokenizer_config.json"), HasSubstr("the limit is")));
}

}  // namespace
}  // namespace quire::text
