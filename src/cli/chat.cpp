#include "cli/chat.h"

#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/printable.h"
#include "formats/data_file.h"

namespace quire::cli {
namespace {

constexpr size_t kMaxChatBytes = size_t{64} << 20;
constexpr const char* kFormat = "quire-chat-1";

template <class Number>
std::optional<Number> number(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <class Number>
Result<void, std::string> set_number(std::optional<Number>& setting, const std::string& name,
                                     const std::string& value, Number low, Number high) {
  const auto parsed = number<Number>(value);
  if (!parsed || !(*parsed >= low && *parsed <= high))
    return Err{"/set " + name + ": '" + printable(value) + "' is no number it can be"};
  setting = parsed;
  return {};
}

std::string real_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

// Whether a file is one that save() wrote, and not something that it must not replace.
bool is_saved_chat(const std::string& path) {
  try {
    const auto parsed = parse_json(formats::read_text_file(path, kMaxChatBytes));
    const json::value* format =
        parsed && parsed->is_object() ? parsed->get_object().if_contains("format") : nullptr;
    return format != nullptr && *format == kFormat;
  } catch (const LoadError&) {
    return false;
  }
}

std::string text_at(const json::object& object, const char* key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : "";
}

bool has_role(const json::value& turn, const char* role) {
  return turn.get_object().at("role") == role;
}

}  // namespace

Result<void, std::string> ChatSettings::set(const std::string& name, const std::string& value) {
  const bool back = value == "default";
  const auto real = [&](std::optional<double>& setting, double low,
                        double high) -> Result<void, std::string> {
    if (back) return setting.reset(), Result<void, std::string>();
    return set_number(setting, name, value, low, high);
  };
  const auto whole = [&](std::optional<int64_t>& setting,
                         int64_t low) -> Result<void, std::string> {
    if (back) return setting.reset(), Result<void, std::string>();
    return set_number(setting, name, value, low, int64_t{1} << 31);
  };
  if (name == "temperature") return real(temperature, 0, 100);
  if (name == "top_p") return real(top_p, 1e-6, 1);
  if (name == "min_p") return real(min_p, 0, 1);
  if (name == "repetition_penalty") return real(repetition_penalty, 1e-3, 100);
  if (name == "top_k") return whole(top_k, 0);
  if (name == "max_tokens") return whole(max_tokens, 1);
  if (name == "seed") {
    if (back) return seed.reset(), Result<void, std::string>();
    return set_number(seed, name, value, uint64_t{0}, UINT64_MAX);
  }
  if (name == "think") {
    if (!back && value != "on" && value != "off")
      return Err{std::string("/set think on, off or default")};
    think = back ? std::nullopt : std::optional(value == "on");
    return {};
  }
  return Err{"there is no setting `" + printable(name) +
             "`; there are temperature, top_p, top_k, min_p, repetition_penalty, max_tokens, seed "
             "and think"};
}

std::string ChatSettings::text() const {
  std::string out;
  const auto add = [&](const char* name, const std::string& value) {
    out += (out.empty() ? "" : ", ") + (name + (" " + value));
  };
  if (temperature) add("temperature", real_text(*temperature));
  if (top_p) add("top_p", real_text(*top_p));
  if (top_k) add("top_k", std::to_string(*top_k));
  if (min_p) add("min_p", real_text(*min_p));
  if (repetition_penalty) add("repetition_penalty", real_text(*repetition_penalty));
  if (max_tokens) add("max_tokens", std::to_string(*max_tokens));
  if (seed) add("seed", std::to_string(*seed));
  if (think) add("think", *think ? "on" : "off");
  return out;
}

void Chat::add_user(const std::string& text) {
  turns_.emplace_back(json::object{{"role", "user"}, {"content", text}});
}

void Chat::add_answer(const std::string& content, const std::string& reasoning) {
  json::object turn{{"role", "assistant"}, {"content", content}};
  if (!reasoning.empty()) turn["reasoning_content"] = reasoning;
  turns_.emplace_back(std::move(turn));
}

json::array Chat::messages() const {
  json::array all;
  if (!system.empty()) all.emplace_back(json::object{{"role", "system"}, {"content", system}});
  all.insert(all.end(), turns_.begin(), turns_.end());
  return all;
}

size_t Chat::turns() const {
  size_t count = 0;
  for (const json::value& turn : turns_) count += has_role(turn, "user") ? 1 : 0;
  return count;
}

bool Chat::take_answer_back() {
  if (turns_.empty() || !has_role(turns_.back(), "assistant")) return false;
  turns_.pop_back();
  return true;
}

void Chat::take_turn_back() {
  while (!turns_.empty()) {
    const bool is_user = has_role(turns_.back(), "user");
    turns_.pop_back();
    if (is_user) return;
  }
}

bool Chat::drop_oldest() {
  if (turns() < 2) return false;
  size_t end = 1;
  while (!has_role(turns_[end], "user")) ++end;
  turns_.erase(turns_.begin(), turns_.begin() + static_cast<std::ptrdiff_t>(end));
  return true;
}

void Chat::save(const std::string& path) const {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !is_saved_chat(path))
    throw LoadError(path + ": is there already and no saved chat; choose another name");
  const json::object all{{"format", kFormat}, {"system", system}, {"messages", turns_}};
  const std::string pending = path + ".tmp";
  std::ofstream out(pending, std::ios::binary);
  out << dump_json(all) << "\n";
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(pending, path, error);
  if (out && !error) return;
  std::filesystem::remove(pending, ignored);
  throw LoadError(path + ": cannot write the chat there");
}

void Chat::load(const std::string& path) {
  const std::string text = formats::read_text_file(path, kMaxChatBytes);
  const auto parsed = parse_json(text, {.max_bytes = kMaxChatBytes});
  const auto bad = [&] { throw LoadError(path + ": is no chat that /save wrote"); };
  if (!parsed || !parsed->is_object()) bad();
  const json::object& all = parsed->get_object();
  const json::value* turns = all.if_contains("messages");
  if (text_at(all, "format") != kFormat || turns == nullptr || !turns->is_array()) bad();
  bool users_turn = true;
  for (const json::value& turn : turns->get_array()) {
    if (!turn.is_object() ||
        text_at(turn.get_object(), "role") != (users_turn ? "user" : "assistant"))
      bad();
    const json::value* content = turn.get_object().if_contains("content");
    if (content == nullptr || !content->is_string()) bad();
    users_turn = !users_turn;
  }
  system = text_at(all, "system");
  turns_ = turns->get_array();
}

std::optional<ChatCommand> parse_command(std::string& line) {
  if (!line.starts_with('/')) return std::nullopt;
  if (line.starts_with("//")) {
    line.erase(0, 1);
    return std::nullopt;
  }
  const size_t end = line.find_first_of(" \t\n");
  ChatCommand command{.name = line.substr(0, end), .rest = {}};
  if (end != std::string::npos) {
    const size_t begin = line.find_first_not_of(" \t\n", end);
    if (begin != std::string::npos) command.rest = line.substr(begin);
  }
  while (!command.rest.empty() && std::isspace(static_cast<unsigned char>(command.rest.back())))
    command.rest.pop_back();
  return command;
}

std::string chat_help() {
  return "/system TEXT        what the model is told before the conversation; without a text, "
         "nothing\n"
         "/set NAME VALUE     temperature, top_p, top_k, min_p, repetition_penalty, max_tokens, "
         "seed, think\n"
         "                    (on, off); VALUE default: as the model's files say; /set alone shows "
         "what was set\n"
         "/retry              make the last answer anew\n"
         "/clear              begin a new conversation\n"
         "/save FILE          write the conversation\n"
         "/load FILE          go on with a conversation that was saved\n"
         "/exit               end; Ctrl-D does it, too\n"
         "\"\"\"                 begins and ends a message of several lines\n"
         "//TEXT              a message that begins with a slash\n"
         "Ctrl-C              stops an answer, or takes back what was typed\n";
}

std::vector<std::string> chat_commands() {
  return {"/help", "/system", "/set", "/retry", "/clear", "/save", "/load", "/exit"};
}

}  // namespace quire::cli
