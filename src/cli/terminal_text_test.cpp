#include "cli/terminal_text.h"

#include <gtest/gtest.h>

namespace quire::cli {
namespace {

TEST(TerminalText, NewlinesAndTabsStayAndOtherControlsAreEscaped) {
  EXPECT_EQ(terminal_text("one\n\ttwo\n"), "one\n\ttwo\n");
  EXPECT_EQ(terminal_text("\x1b[2J\x1b]0;title\x07"), "\\x1b[2J\\x1b]0;title\\x07");
  EXPECT_EQ(terminal_text("a\rb\bc\x7f"), "a\\rb\\x08c\\x7f");
  EXPECT_EQ(terminal_text("\xc2\x9b"
                          "2J"),
            "\\u009b2J");  // one character that means ESC [
  EXPECT_EQ(terminal_text("grüße, 日本語 🙂"), "grüße, 日本語 🙂");
  EXPECT_EQ(terminal_text(""), "");
  EXPECT_EQ(terminal_text(std::string(5000, 'x')), std::string(5000, 'x'));  // never cut
}

}  // namespace
}  // namespace quire::cli
