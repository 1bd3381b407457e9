// Long documents are parsed in pieces of 64 KiB: what a piece ends in must come out whole.
#include <gtest/gtest.h>

#include "base/json.h"

namespace quire {
namespace {

std::string repeat(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

// The string that `written`, inside quotation marks, stands for.
std::string parsed(const std::string& written) {
  const auto value = parse_json("[\"" + written + "\"]");
  EXPECT_TRUE(value.ok()) << (value ? "" : value.error());
  if (!value) return {};
  const json::string& text = value->as_array().at(0).as_string();
  return {text.data(), text.size()};
}

// More of a string than Boost.JSON collects in one go, behind a character or an escape that the
// piece's end may be in.
TEST(JsonPieces, EndInNoCharacterAndNoEscape) {
  struct Case {
    const char *written, *meant;
  };
  const Case cases[] = {{"é", "é"},       {"한", "한"},        {"\U0001F642", "\U0001F642"},
                        {"\\u00e9", "é"}, {"\\ud55c", "한"},   {"\\ud83d\\ude42", "\U0001F642"},
                        {"\\\\", "\\"},   {"\\\\\\\"", "\\\""}};
  for (const Case& c : cases) {
    for (size_t before = (64u << 10) - 16; before <= 64u << 10; ++before) {
      const std::string start(before, 'x'), rest(5000, 'y');
      ASSERT_TRUE(parsed(start + c.written + rest) == start + c.meant + rest)
          << c.written << " behind " << before;
    }
  }
}

TEST(JsonPieces, TextsOfOneKindComeOutWhole) {
  for (const char* shift : {"", "x", "xx", "xxx"}) {
    for (const char* unit : {"ж", "한", "\U0001F642"})
      EXPECT_TRUE(parsed(shift + repeat(unit, 100'000)) == shift + repeat(unit, 100'000)) << unit;
    EXPECT_TRUE(parsed(shift + repeat("\\ud55c", 50'000)) == shift + repeat("한", 50'000));
    EXPECT_TRUE(parsed(shift + repeat("\\\\", 100'000)) == shift + repeat("\\", 100'000));
  }
}

// A number must not depend on where in a long body it stands. With many digits and an exponent it
// did.
TEST(JsonPieces, EndInNoNumber) {
  for (const char* number : {"39.729115516500061230041635568847e-169", "-1.7976931348623157e+308",
                             "0.30000000000000004", "18446744073709551615"}) {
    const json::value meant = parse_json(number).value();
    for (size_t before = (64u << 10) - 32; before <= 64u << 10; ++before) {
      const auto value = parse_json(std::string(before, ' ') + number + std::string(5000, ' '));
      ASSERT_TRUE(value.ok()) << value.error();
      EXPECT_EQ(*value, meant) << number << " behind " << before;
    }
  }
}

TEST(JsonPieces, BrokenTextsAreErrorsWhereverTheyAreCut) {
  for (size_t before = (64u << 10) - 8; before <= 64u << 10; ++before) {
    const std::string start = "[\"" + std::string(before, 'x');
    for (const char* bad : {"\xed\xa0\x80", "\x80\x80\x80\x80\x80", "\xff", "\\ud800", "\\u12g4"})
      EXPECT_FALSE(parse_json(start + bad + std::string(5000, 'y') + "\"]").ok()) << before;
  }
  EXPECT_FALSE(parse_json(repeat("\x80", 200'000)).ok());
  EXPECT_FALSE(parse_json(repeat("\\", 200'001)).ok());
}

}  // namespace
}  // namespace quire
