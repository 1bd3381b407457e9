#include "cli/answer_view.h"

#include "cli/terminal_text.h"

namespace quire::cli {
namespace {

constexpr const char *kDim = "\x1b[2m", *kPlain = "\x1b[22m";

}  // namespace

void AnswerView::reasoning(std::string_view text) {
  if (!is_terminal_ || text.empty()) return;
  if (has_colours_ && !dim_) std::fputs(kDim, output_);
  dim_ = has_colours_;
  thought_ = true;
  write(text);
}

void AnswerView::content(std::string_view text) {
  if (text.empty()) return;
  leave_reasoning();
  begun_ = true;
  write(text);
}

void AnswerView::leave_reasoning() {
  if (dim_) std::fputs(kPlain, output_);
  if (thought_ && !begun_) std::fputs("\n\n", output_);
  dim_ = thought_ = false;
}

void AnswerView::write(std::string_view text) {
  const std::string shown = is_terminal_ ? terminal_text(text) : std::string(text);
  std::fwrite(shown.data(), 1, shown.size(), output_);
  std::fflush(output_);
}

void AnswerView::finish() {
  if (dim_) std::fputs(kPlain, output_);
  std::fputs("\n", output_);
  std::fflush(output_);
  dim_ = thought_ = begun_ = false;
}

}  // namespace quire::cli
