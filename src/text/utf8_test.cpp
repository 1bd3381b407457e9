#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace quire::text {
namespace {

std::string stream(std::string_view bytes, size_t step) {
  Utf8Stream utf8;
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += step) {
    std::string delta;
    utf8.push(bytes.substr(i, step), delta);
    EXPECT_TRUE(is_valid_utf8(delta)) << "a delta splits a character";
    out += delta;
  }
  utf8.flush(out);
  return out;
}

TEST(Utf8, AcceptsWhatUnicodeAccepts) {
  for (const char* good :
       {"", "a", "é", "中", "😀", "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF", "\xEE\x80\x80"}) {
    EXPECT_TRUE(is_valid_utf8(good)) << good;
  }
  // A bare continuation byte, overlong forms, a surrogate, beyond U+10FFFF, 0xFF.
  for (const char* bad : {"\x80", "\xC0\x80", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\x80\x80",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE4\xB8"}) {
    EXPECT_FALSE(is_valid_utf8(bad));
  }
}

TEST(Utf8, ReplacesMaximalInvalidParts) {
  // Table 3-8 of the Unicode standard.
  EXPECT_EQ(stream("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", 1),
            "a\uFFFD\uFFFD\uFFFD"
            "b\uFFFD"
            "c\uFFFD\uFFFD"
            "d");
  EXPECT_EQ(stream("\xE4\xB8", 1), "\uFFFD");
  EXPECT_EQ(stream("\xF0\x9F\x98", 3), "\uFFFD");
}

TEST(Utf8, StreamingDoesNotDependOnTheCuts) {
  std::mt19937 random(7);
  const std::string alphabet("a\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80\xFF\xED\xA0");
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 12; ++i) bytes += alphabet[random() % alphabet.size()];
    const std::string whole = stream(bytes, bytes.size());
    for (size_t step = 1; step < 5; ++step) ASSERT_EQ(stream(bytes, step), whole);
  }
}

}  // namespace
}  // namespace quire::text
