#include "server/http/host_header.h"

#include <gtest/gtest.h>

#include <string>

namespace quire::server::http {
namespace {

// By the grammar of RFC 3986, section 3.2; its own examples among them.
TEST(HostHeader, TakesWhatTheGrammarHas) {
  for (const char* value : {"",
                            ":",
                            ":80",
                            "a",
                            "localhost:8000",
                            "127.0.0.1:8000",
                            "my_box.local",
                            "xn--nxasmq6b",
                            "a.b.",
                            "1.2.3",
                            "a:",
                            "%2Ftmp%2Fsocket",
                            "!$&'()*+,;=~",
                            "[::1]",
                            "[::1]:8000",
                            "[::]:",
                            "[2001:db8::7]",
                            "[::FFFF:129.144.52.38]:80",
                            "[fe80::1%25eth0]",
                            "[fe80::1%eth0]:1",
                            "[v1.fe80::a+en1]",
                            "[vF.x]"})
    EXPECT_TRUE(is_host_value(value)) << value;
}

TEST(HostHeader, RefusesAllElse) {
  for (const char* value :
       {" ",       "a b",       "a\tb",  "a\x01",  "a\x7f",     "\xc3\xa4",  "a/",     "http://a",
        "u@a",     "a?b",       "a#b",   "a,b c",  "a\"",       "<a>",       "a\\b",   "a^",
        "a`",      "{a}",       "a|b",   "%",      "%2",        "%zz",       "a:b",    "a:-1",
        "a:1:2",   "::1",       "[",     "]",      "[]",        "[::1",      "::1]",   "[::1]a",
        "[::1]80", "[1.2.3.4]", "[a]",   "[::1%]", "[::1%a b]", "[::12345]", "a[::1]", "[[::1]]",
        "[v.x]",   "[v1]",      "[v1.]", "[v]",    "[vg.x]",    "[v1.a/b]"})
    EXPECT_FALSE(is_host_value(value)) << value;
  EXPECT_FALSE(is_host_value(std::string("a\0b", 3)));
  EXPECT_FALSE(is_host_value(std::string("[::1\0]", 6)));
}

}  // namespace
}  // namespace quire::server::http
