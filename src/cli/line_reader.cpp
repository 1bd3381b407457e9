#include "cli/line_reader.h"

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string_view>

namespace quire::cli {
namespace {

constexpr std::string_view kFence = "\"\"\"";

class PlainReader : public LineReader {
 public:
  Line read(const std::string&) override {
    Line line;
    if (std::getline(std::cin, line.text)) line.kind = Kind::kLine;
    return line;
  }
  void remember(const std::string&) override {}
};

}  // namespace

std::unique_ptr<LineReader> make_plain_reader() { return std::make_unique<PlainReader>(); }

std::string history_file() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::string folder;
  if (state != nullptr && *state != 0)
    folder = state;
  else if (home != nullptr && *home != 0)
    folder = std::string(home) + "/.local/state";
  if (folder.empty()) return "";
  folder += "/quire";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error ? "" : folder + "/history";
}

std::optional<std::string> read_message(LineReader& reader, bool& interrupted) {
  interrupted = false;
  LineReader::Line line = reader.read("> ");
  const auto stop = [&]() -> std::optional<std::string> {
    if (line.kind == LineReader::Kind::kEnd) return std::nullopt;
    interrupted = true;
    return "";
  };
  if (line.kind != LineReader::Kind::kLine) return stop();
  if (!line.text.starts_with(kFence)) {
    if (!line.text.empty()) reader.remember(line.text);
    return line.text;
  }
  std::string message = line.text.substr(kFence.size());
  while (!message.ends_with(kFence)) {
    line = reader.read(". ");
    if (line.kind == LineReader::Kind::kEnd) return message;  // what is there is meant
    if (line.kind != LineReader::Kind::kLine) return stop();
    message += (message.empty() ? "" : "\n") + line.text;
    if (line.text.ends_with(kFence)) break;
  }
  if (message.ends_with(kFence)) message.resize(message.size() - kFence.size());
  while (message.ends_with('\n')) message.pop_back();
  return message;
}

}  // namespace quire::cli
