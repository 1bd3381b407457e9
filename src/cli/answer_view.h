#pragma once
#include <cstdio>
#include <string>
#include <string_view>

namespace quire::cli {

// Shows an answer as it is made. On a terminal thoughts are dim and control characters are shown,
// not obeyed; a file or a pipe gets the answer's bytes and nothing else.
class AnswerView {
 public:
  AnswerView(FILE* output, bool is_terminal, bool has_colours)
      : output_(output), is_terminal_(is_terminal), has_colours_(has_colours) {}

  void reasoning(std::string_view text);
  void content(std::string_view text);
  // The line ends, whatever there was.
  void finish();

 private:
  void leave_reasoning();
  void write(std::string_view text);

  FILE* output_;
  bool is_terminal_, has_colours_;
  bool dim_ = false, thought_ = false, begun_ = false;
};

}  // namespace quire::cli
