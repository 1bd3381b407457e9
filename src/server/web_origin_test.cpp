#include "server/web_origin.h"

#include <gtest/gtest.h>

namespace quire::server {
namespace {

TEST(WebOrigin, LoopbackIsAnAddressOrAName) {
  for (const char* host : {"localhost", "a.localhost", "127.0.0.1", "127.9.8.7", "::1", "[::1]"})
    EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"", "127.0.0.1.evil.example", "127.evil.example", "localhost.example",
                           "127.0.0", "127.0.0.", "0.0.0.0", "10.0.0.1", "::", "[::2]"})
    EXPECT_FALSE(is_loopback(host)) << host;
}

TEST(WebOrigin, PagesOfOtherMachinesAreKnown) {
  for (const char* origin :
       {"http://evil.example:8000", "https://evil.example", "HTTP://Evil.Example:8000",
        "http://127.0.0.1.evil.example:8000", "http://10.0.0.1", "http://[::2]:80", "http://"})
    EXPECT_TRUE(is_foreign_page(origin)) << origin;
  for (const char* origin :
       {"", "null", "http://localhost:3000", "http://LOCALHOST", "https://127.0.0.1:8443",
        "http://[::1]:8000", "chrome-extension://abc", "tauri://localhost", "app://obsidian.md"})
    EXPECT_FALSE(is_foreign_page(origin)) << origin;
}

}  // namespace
}  // namespace quire::server
