#include "cli/chat.h"

#include <gtest/gtest.h>

#include <deque>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "cli/answer_view.h"
#include "cli/line_reader.h"

namespace quire::cli {
namespace {

Chat chat_of(int turns) {
  Chat chat;
  chat.system = "be short";
  for (int i = 0; i < turns; ++i) {
    chat.add_user("q" + std::to_string(i));
    chat.add_answer("a" + std::to_string(i), i == 1 ? "hm" : "");
  }
  return chat;
}

std::string text_of(const Chat& chat) {
  std::string text;
  for (const json::value& message : chat.messages())
    text += std::string(message.at("content").get_string()) + " ";
  return text;
}

TEST(Chat, DropsTheOldestTurnsAndKeepsTheSystemText) {
  Chat chat = chat_of(3);
  chat.add_user("q3");
  EXPECT_EQ(chat.turns(), 4u);
  EXPECT_TRUE(chat.drop_oldest());
  EXPECT_EQ(text_of(chat), "be short q1 a1 q2 a2 q3 ");
  EXPECT_TRUE(chat.drop_oldest());
  EXPECT_TRUE(chat.drop_oldest());
  EXPECT_EQ(text_of(chat), "be short q3 ");
  EXPECT_FALSE(chat.drop_oldest());
  EXPECT_EQ(text_of(chat), "be short q3 ");
}

TEST(Chat, TakesBack) {
  Chat chat = chat_of(2);
  EXPECT_TRUE(chat.take_answer_back());
  EXPECT_EQ(text_of(chat), "be short q0 a0 q1 ");
  EXPECT_FALSE(chat.take_answer_back());
  chat.take_turn_back();
  EXPECT_EQ(text_of(chat), "be short q0 a0 ");
  chat.take_turn_back();
  EXPECT_TRUE(chat.empty());
  chat.take_turn_back();
  EXPECT_FALSE(chat.take_answer_back());
}

class SavedChat : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "quire-chat-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    dir_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string write(const std::string& text) const {
    const std::string path = dir_ + "/other.json";
    std::ofstream(path) << text;
    return path;
  }
  std::string dir_;
};

TEST_F(SavedChat, ComesBackAsItWas) {
  const Chat chat = chat_of(2);
  const std::string path = dir_ + "/chat.json";
  chat.save(path);
  Chat loaded;
  loaded.load(path);
  EXPECT_EQ(loaded.messages(), chat.messages());
  EXPECT_EQ(loaded.messages()[4].at("reasoning_content"), "hm");
  chat_of(1).save(path);  // over itself
  loaded.load(path);
  EXPECT_EQ(loaded.turns(), 1u);
}

TEST_F(SavedChat, ReplacesNothingElseAndReadsNothingElse) {
  const std::string notes = write("my notes");
  EXPECT_THROW(chat_of(1).save(notes), LoadError);
  EXPECT_THROW(chat_of(1).save(dir_ + "/no/such/folder.json"), LoadError);
  Chat chat = chat_of(1);
  const std::string format = R"({"format": "quire-chat-1", "messages": )";
  for (const std::string& text :
       {std::string("my notes"), std::string("[]"), std::string(R"({"messages": []})"),
        format + "1}", format + R"([{"role": "system", "content": "x"}]})",
        format + R"([{"role": "user"}]})",
        format + R"([{"role": "user", "content": "x"}, {"role": "user", "content": "y"}]})",
        format + R"([3]})"}) {
    EXPECT_THROW(chat.load(write(text)), LoadError) << text;
    EXPECT_EQ(text_of(chat), "be short q0 a0 ");
  }
  EXPECT_THROW(chat.load(dir_ + "/absent"), LoadError);
}

TEST(ChatSettings, TakeValuesInRangeOnly) {
  ChatSettings settings;
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"temperature", "0.6"},
                                                        {"top_p", "0.95"},
                                                        {"top_k", "20"},
                                                        {"min_p", "0"},
                                                        {"repetition_penalty", "1.1"},
                                                        {"max_tokens", "100"},
                                                        {"seed", "18446744073709551615"},
                                                        {"think", "off"}})
    EXPECT_TRUE(settings.set(name, value)) << name;
  EXPECT_EQ(
      settings.text(),
      "temperature 0.6, top_p 0.95, top_k 20, min_p 0, repetition_penalty 1.1, max_tokens 100, "
      "seed 18446744073709551615, think off");
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"temperature", "-1"},
                                                        {"temperature", "hot"},
                                                        {"temperature", ""},
                                                        {"top_p", "0"},
                                                        {"top_p", "1.5"},
                                                        {"top_k", "-1"},
                                                        {"min_p", "2"},
                                                        {"max_tokens", "0"},
                                                        {"seed", "-1"},
                                                        {"think", "maybe"},
                                                        {"temperature", "nan"},
                                                        {"temprature", "1"}})
    EXPECT_FALSE(settings.set(name, value)) << name << " " << value;
  for (const char* name : {"temperature", "top_p", "top_k", "min_p", "repetition_penalty",
                           "max_tokens", "seed", "think"})
    EXPECT_TRUE(settings.set(name, "default"));
  EXPECT_EQ(settings.text(), "");
}

TEST(ChatCommand, IsALineThatBeginsWithASlash) {
  std::string line = "/set  temperature 0.5 ";
  auto command = parse_command(line);
  ASSERT_TRUE(command);
  EXPECT_EQ(command->name, "/set");
  EXPECT_EQ(command->rest, "temperature 0.5");
  line = "/clear";
  EXPECT_EQ(parse_command(line)->rest, "");
  line = "//etc is a folder";
  EXPECT_FALSE(parse_command(line));
  EXPECT_EQ(line, "/etc is a folder");
  line = "what is /etc";
  EXPECT_FALSE(parse_command(line));
}

class Typed : public LineReader {
 public:
  explicit Typed(std::deque<Line> lines) : lines_(std::move(lines)) {}
  Line read(const std::string&) override {
    if (lines_.empty()) return {};
    Line line = lines_.front();
    lines_.pop_front();
    return line;
  }
  void remember(const std::string& line) override { remembered_ += line + ";"; }
  std::deque<Line> lines_;
  std::string remembered_;
};

std::vector<std::string> messages_of(const std::vector<std::string>& typed) {
  std::deque<LineReader::Line> lines;
  for (const std::string& line : typed)
    lines.push_back(line == "^C" ? LineReader::Line{LineReader::Kind::kInterrupt, ""}
                                 : LineReader::Line{LineReader::Kind::kLine, line});
  Typed reader(std::move(lines));
  std::vector<std::string> messages;
  bool interrupted = false;
  while (auto message = read_message(reader, interrupted))
    messages.push_back(interrupted ? "^C" : *message);
  return messages;
}

TEST(Messages, HaveOneLineOrSeveral) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(messages_of({"a", "", "b"}), (Texts{"a", "", "b"}));
  EXPECT_EQ(messages_of({"\"\"\"", "a", "", " b", "\"\"\"", "c"}), (Texts{"a\n\n b", "c"}));
  EXPECT_EQ(messages_of({"\"\"\"a", "b\"\"\"", "c"}), (Texts{"a\nb", "c"}));
  EXPECT_EQ(messages_of({"\"\"\"a\"\"\"", "c"}), (Texts{"a", "c"}));
  EXPECT_EQ(messages_of({"\"\"\"", "a", "^C", "c"}), (Texts{"^C", "c"}));
  EXPECT_EQ(messages_of({"\"\"\"", "a"}), (Texts{"a"}));  // the input ends
  EXPECT_EQ(messages_of({"say \"\"\" once"}), (Texts{"say \"\"\" once"}));
}

std::string viewed(bool is_terminal, bool has_colours) {
  char* text = nullptr;
  size_t size = 0;
  FILE* file = open_memstream(&text, &size);
  AnswerView view(file, is_terminal, has_colours);
  view.reasoning("h");
  view.reasoning("m\x1b[2J");
  view.content("yes\n\x1b]0;x\a");
  view.finish();
  std::fclose(file);
  std::string out(text, size);
  std::free(text);
  return out;
}

TEST(AnswerView, GivesAPipeTheAnswerAndNothingElse) {
  EXPECT_EQ(viewed(false, true), "yes\n\x1b]0;x\a\n");
}

TEST(AnswerView, ShowsDimThoughtsAndObeysNoModel) {
  EXPECT_EQ(viewed(true, true), "\x1b[2mhm\\x1b[2J\x1b[22m\n\nyes\n\\x1b]0;x\\x07\n");
  EXPECT_EQ(viewed(true, false), "hm\\x1b[2J\n\nyes\n\\x1b]0;x\\x07\n");
}

}  // namespace
}  // namespace quire::cli
