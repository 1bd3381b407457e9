#pragma once
#include <memory>
#include <optional>
#include <string>

namespace quire::cli {

// What a person types, or a pipe brings, line by line.
class LineReader {
 public:
  virtual ~LineReader() = default;

  enum class Kind { kLine, kInterrupt, kEnd };
  struct Line {
    Kind kind = Kind::kEnd;
    std::string text;
  };
  // `prompt` is shown to people only.
  virtual Line read(const std::string& prompt) = 0;
  // For the arrow keys, and for the next time.
  virtual void remember(const std::string& line) = 0;
};

// With line editing and a history that is kept in `history_file` (empty: not kept), on the
// terminal that standard input is, shown on `output`. Ctrl-C gives kInterrupt, Ctrl-D kEnd.
std::unique_ptr<LineReader> make_terminal_reader(FILE* output, const std::string& history_file);
// Lines of standard input as they are; never a prompt.
std::unique_ptr<LineReader> make_plain_reader();

// $XDG_STATE_HOME/quire/history, or ~/.local/state/quire/history; its folder is made. Empty if
// there is no place for it.
std::string history_file();

// One message: a line, or all lines between two lines with """. Nothing at the end of the input.
// `interrupted` is set, and the message is empty, if Ctrl-C took it back.
std::optional<std::string> read_message(LineReader& reader, bool& interrupted);

}  // namespace quire::cli
