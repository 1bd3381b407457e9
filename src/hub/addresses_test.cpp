#include "hub/addresses.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>
#include <string>

#include "hub/http.h"

namespace quire::hub {
namespace {

bool is_public_ip(const std::string& text) {
  sockaddr_storage storage{};
  auto* in4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* in6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, text.c_str(), &in4->sin_addr) == 1) {
    storage.ss_family = AF_INET;
  } else {
    storage.ss_family = AF_INET6;
    EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &in6->sin6_addr), 1) << text;
  }
  return is_public(reinterpret_cast<const sockaddr&>(storage));
}

TEST(Addresses, KnowsWhatIsInsideANetwork) {
  for (const char* closed : {"127.0.0.1",
                             "127.255.255.255",
                             "10.1.2.3",
                             "172.16.0.1",
                             "172.31.255.255",
                             "192.168.1.1",
                             "169.254.169.254",
                             "100.64.0.1",
                             "0.0.0.0",
                             "224.0.0.1",
                             "255.255.255.255",
                             "198.18.0.1",
                             "::1",
                             "::",
                             "fe80::1",
                             "fc00::1",
                             "fd12:3456::1",
                             "ff02::1",
                             "::ffff:10.0.0.1",
                             "::ffff:127.0.0.1",
                             "64:ff9b::a00:1",
                             "2002:7f00:1::",
                             "2001:db8::1",
                             "2001::1"}) {
    EXPECT_FALSE(is_public_ip(closed)) << closed;
    EXPECT_FALSE(is_public_host(closed)) << closed;
  }
  for (const char* open : {"1.1.1.1", "172.15.255.255", "172.32.0.1", "192.167.1.1", "100.63.0.1",
                           "100.128.0.1", "2606:4700::1111", "::ffff:1.1.1.1", "2a00:1450::1"}) {
    EXPECT_TRUE(is_public_ip(open)) << open;
    EXPECT_TRUE(is_public_host(open)) << open;
  }
}

TEST(Addresses, KnowsNamesAndOtherSpellings) {
  for (const char* closed : {"localhost", "LOCALHOST", "localhost.", "a.localhost", "printer.local",
                             "metadata.google.internal", "127.1", "0x7f000001", "2130706433",
                             "0177.0.0.1", "[::1]", "[fe80::1%25eth0]", ""})
    EXPECT_FALSE(is_public_host(closed)) << closed;
  for (const char* open : {"huggingface.co", "cdn-lfs.hf.co", "local.example.com", "internal.org"})
    EXPECT_TRUE(is_public_host(open)) << open;
}

TEST(Redirects, LeadOnlyWhereTheyMay) {
  const std::string hub = "https://huggingface.co";
  EXPECT_FALSE(refuse_redirect(hub, "https://cdn.example.com/x?sig=1"));
  EXPECT_FALSE(refuse_redirect(hub, "https://huggingface.co:8443/x"));
  for (const char* refused :
       {"http://cdn.example.com/x", "https://127.0.0.1/x", "https://169.254.169.254/latest",
        "https://[::1]/x", "https://localhost/x", "https://2130706433/", "file:///etc/passwd",
        "ftp://cdn.example.com/x", "https://user:secret@cdn.example.com/x", "gopher://x", ""})
    EXPECT_TRUE(refuse_redirect(hub, refused)) << refused;
  // A hub inside a network may send to others there.
  EXPECT_FALSE(refuse_redirect("http://127.0.0.1:8000", "http://127.0.0.1:9000/x"));
  EXPECT_FALSE(refuse_redirect("http://10.0.0.1", "http://10.0.0.2/x"));
}

TEST(Redirects, OriginsAreSchemeHostAndPort) {
  EXPECT_EQ(origin_of("HTTPS://Hub.Example:443/a"), "https://hub.example:443");
  EXPECT_EQ(origin_of("https://hub.example/a/../b"), "https://hub.example:443");
  EXPECT_NE(origin_of("https://hub.example"), origin_of("http://hub.example"));
  EXPECT_NE(origin_of("https://hub.example"), origin_of("https://hub.example:444"));
  EXPECT_NE(origin_of("https://hub.example"), origin_of("https://hub.example.evil.org"));
  EXPECT_EQ(origin_of("https://hub.example@evil.org/"), "https://evil.org:443");
  EXPECT_EQ(resolve_url("https://a.example/x/y?z", "/b"), "https://a.example/b");
  EXPECT_EQ(resolve_url("https://a.example/x/y", "//b.example/c"), "https://b.example/c");
  EXPECT_EQ(escape_url("refs/pr/1"), "refs%2Fpr%2F1");
  EXPECT_EQ(escape_url("a b/\xc3\xa9?#", "/"), "a%20b/%C3%A9%3F%23");
}

}  // namespace
}  // namespace quire::hub
