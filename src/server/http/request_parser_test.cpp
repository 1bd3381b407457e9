#include "server/http/request_parser.h"

#include <gtest/gtest.h>

#include <span>

namespace quire::server::http {
namespace {

constexpr RequestParser::Limits kLimits{1024, 4096};

// Feeds `bytes` in pieces of `step`, as a connection does: unused bytes are presented again.
void feed(RequestParser& parser, std::string_view bytes, size_t step, std::string* rest = nullptr) {
  std::string buffer;
  for (size_t at = 0; at < bytes.size() && !parser.done() && !parser.error(); at += step) {
    buffer += bytes.substr(at, step);
    size_t used = 0;
    do {
      used = parser.put(buffer);
      buffer.erase(0, used);
    } while (used > 0 && !buffer.empty() && !parser.done() && !parser.error());
  }
  if (rest != nullptr) *rest = buffer;
}

TEST(RequestParser, ReadsARequestHoweverItIsCut) {
  const std::string text =
      "\r\nPOST /v1/x%20y?a=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello";
  for (size_t step = 1; step <= text.size(); ++step) {
    RequestParser parser(kLimits);
    feed(parser, text, step);
    ASSERT_FALSE(parser.error()) << parser.error()->message;
    ASSERT_TRUE(parser.done()) << step;
    const Request request = parser.take();
    EXPECT_EQ(request.head.method, "POST");
    EXPECT_EQ(request.head.path, "/v1/x y");
    EXPECT_EQ(request.head.query, "a=1");
    EXPECT_EQ(request.head.header("x-a"), "b");
    EXPECT_TRUE(request.head.keep_alive);
    EXPECT_EQ(request.body, "hello");
  }
}

TEST(RequestParser, ReadsChunks) {
  const std::string text =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5;ext=1\r\nhello\r\n1\r\n!\r\n0\r\nTrailer: x\r\n\r\nGET";
  for (size_t step = 1; step <= text.size(); ++step) {
    RequestParser parser(kLimits);
    feed(parser, text, step);
    ASSERT_TRUE(parser.done()) << step;
    const Request request = parser.take();
    EXPECT_EQ(request.body, "hello!");
    EXPECT_EQ(request.head.header("trailer"), "");  // trailers come too late to be headers
  }
}

TEST(RequestParser, LeavesTheNextRequestAlone) {
  RequestParser parser(kLimits);
  std::string rest;
  feed(parser, "GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\n", 1000, &rest);
  EXPECT_TRUE(parser.done());
  EXPECT_EQ(rest, "GET /b HTTP/1.1\r\n");
}

std::string repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

struct BadRequest {
  std::string text;
  int status;
};

void expect_refused(std::span<const BadRequest> cases) {
  for (const BadRequest& bad : cases) {
    for (const size_t step : {size_t{1}, size_t{7}, bad.text.size()}) {
      SCOPED_TRACE(bad.text.substr(0, 120));
      RequestParser parser(kLimits);
      feed(parser, bad.text, step);
      ASSERT_TRUE(parser.error().has_value()) << step;
      EXPECT_EQ(parser.error()->status, bad.status);
    }
  }
}

TEST(RequestParser, RefusesBadRequests) {
  const std::string host = "Host: h\r\n";
  const BadRequest cases[] = {
      {"GARBAGE\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\n\r\n", 505},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + host + "\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
      {"GET / HTTP/1.0\r\nHost: a b\r\n\r\n", 400},
      {"GET / HTTP/1.0\r\n" + host + host + "\r\n", 400},
      {"GET * HTTP/1.1\r\n" + host + "\r\n", 400},
      {"POST * HTTP/1.1\r\n" + host + "\r\n", 400},
      {"OPTIONS ** HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /%zz HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET /%00 HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET / HTTP/1.1\r\nBad Name: x\r\n" + host + "\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "A: " + std::string(2000, 'x') + "\r\n\r\n", 431},
      {"GET /" + std::string(2000, 'x') + " HTTP/1.1\r\n" + host + "\r\n", 431},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 5000\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999\r\n\r\n", 400},
      // Each of these could smuggle a second request past a proxy.
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding:\r\nContent-Length: 4\r\n\r\n", 501},
      {"POST / HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n", 400},
      {"POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nZZ\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n2000\r\n", 413},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n1\r\nxyzzzz", 400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n1;" +
           std::string(40000, 'x'),
       400},
      {"POST / HTTP/1.1\r\n" + host +
           "Transfer-Encoding: chunked\r\n\r\n0\r\nA: " + std::string(40000, 'x'),
       400},
  };
  expect_refused(cases);
}

TEST(RequestParser, RefusesTooMuchBesideChunksAndUnclearHeaders) {
  const std::string host = "Host: h\r\n";
  const BadRequest cases[] = {
      // Extensions and trailers in whole lines, and in many short ones.
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n1;a=" +
           std::string(20000, 'x') + "\r\nx\r\n0\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n" +
           repeat("1;a=" + std::string(100, 'x') + "\r\nx\r\n", 250) + "0\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\n" + host +
           "Transfer-Encoding: chunked\r\n\r\n0\r\nA: " + std::string(20000, 'x') + "\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n" +
           repeat("1;" + std::string(15, 'x') + "\r\nx\r\n", 1050) + "0\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n" +
           std::string(20000, '0') + "1\r\nx\r\n0\r\n\r\n",
       400},
      // Which of two counts is a matter of taste.
      {"GET / HTTP/1.1\r\n" + host + "Content-Type: a/b\r\nContent-Type: c/d\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "Authorization: Bearer a\r\nX: y\r\nauthorization: b\r\n\r\n",
       400},
      {"GET / HTTP/1.1\r\n" + host + "X-Api-Key: a\r\nX-Api-Key: b\r\n\r\n", 400},
      // A header in two lines is one header for some parsers and two for others.
      {"GET / HTTP/1.1\r\n" + host + "A: b\r\n c\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "A: b\r\n\tc\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nA:\r\n b\r\n" + host + "\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 400},
  };
  expect_refused(cases);
}

TEST(RequestParser, TakesManyChunksAndShortExtensions) {
  std::string text = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  text += repeat("1;a=b\r\nx\r\n", 4000) + "0\r\nA: b\r\nC: d\r\n\r\n";
  for (const size_t step : {size_t{1}, size_t{7}, text.size()}) {
    RequestParser parser(kLimits);
    feed(parser, text, step);
    ASSERT_TRUE(parser.done()) << (parser.error() ? parser.error()->message : "unfinished");
    EXPECT_EQ(parser.take().body, std::string(4000, 'x'));
  }
}

TEST(RequestParser, TakesAHeaderTwiceIfBothSayTheSame) {
  const std::string text =
      "GET / HTTP/1.1\r\nHost: h\r\nContent-Type: a/b\r\nContent-Type: a/b\r\nX: a\r\nX: b\r\n\r\n";
  RequestParser parser(kLimits);
  feed(parser, text, text.size());
  EXPECT_TRUE(parser.done());
}

TEST(RequestParser, HeadLimitIsExactHoweverItIsCut) {
  const std::string before = "GET / HTTP/1.1\r\nHost: h\r\nA: ", after = "\r\n\r\n";
  for (const size_t length : {kLimits.header_bytes, kLimits.header_bytes + 1}) {
    const std::string filler(length - before.size() - after.size(), 'x');
    for (const size_t step : {size_t{1}, size_t{3}, size_t{500}, length}) {
      RequestParser parser(kLimits);
      feed(parser, before + filler + after, step);
      EXPECT_EQ(parser.done(), length == kLimits.header_bytes) << length << " " << step;
    }
  }
}

TEST(RequestParser, TheNumberOfHeadersIsExactHoweverItIsCut) {
  const std::string next = "GET /next HTTP/1.1\r\nHost: h\r\n\r\n";
  for (const int count : {128, 129, 3000}) {
    const std::string head = "GET / HTTP/1.1\r\nHost: h\r\n" + repeat("a:b\r\n", count - 1);
    for (const size_t step : {size_t{1}, size_t{3}, size_t{500}, size_t{100'000}}) {
      RequestParser parser({16u << 10, 4096}), unfinished({16u << 10, 4096});
      std::string rest;
      feed(parser, head + "\r\n" + next, step, &rest);
      EXPECT_EQ(parser.done(), count == 128) << count << " " << step;
      feed(unfinished, head, step);
      EXPECT_FALSE(unfinished.done());
      if (count == 128) {
        EXPECT_TRUE(next.starts_with(rest)) << rest;
      } else {
        ASSERT_TRUE(parser.error().has_value()) << step;
        EXPECT_EQ(parser.error()->status, 431);
      }
      // One line may still be in the buffer.
      EXPECT_EQ(unfinished.error().has_value(), count > 129) << count << " " << step;
    }
  }
}

TEST(RequestParser, WhatIsKeptOfTrailersCounts) {
  RequestParser parser(kLimits);
  feed(parser,
       "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" +
           repeat("a:b\r\n", 1000) + "\r\n",
       100);
  ASSERT_TRUE(parser.done());
  EXPECT_EQ(parser.body_bytes(), 1u);
  EXPECT_GE(parser.held_bytes(), 100u * 1000);
}

TEST(RequestParser, SumsUpChunksAgainstTheLimit) {
  std::string text = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 5; ++i) text += "3e8\r\n" + std::string(1000, 'x') + "\r\n";
  RequestParser parser(kLimits);
  feed(parser, text, 100);
  ASSERT_TRUE(parser.error().has_value());
  EXPECT_EQ(parser.error()->status, 413);
}

// Other parsers take LF for a line end: nothing may depend on which reading is right.
TEST(RequestParser, LinesThatEndWithLfAloneAreToldAsSuch) {
  for (const std::string text :
       {"GET / HTTP/1.1\nHost: h\n\n", "GET / HTTP/1.1\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: h\n\r\n", "GET / HTTP/1.1\r\nHost: h\nA: b\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET / HTTP/1.1\r\nHost: h\r\n\n"}) {
    for (const size_t step : {size_t{1}, size_t{7}, text.size()}) {
      SCOPED_TRACE(text + std::to_string(step));
      RequestParser parser(kLimits);
      feed(parser, text, step);
      ASSERT_TRUE(parser.error().has_value());
      EXPECT_EQ(parser.error()->status, 400);
      EXPECT_NE(parser.error()->message.find("LF in place of CR LF"), std::string::npos)
          << parser.error()->message;
    }
  }
  RequestParser other(kLimits);  // the body's line ends are its own affair
  feed(other, "POST / HTTP/1.1\r\nHost: a b\r\nContent-Length: 4\r\n\r\na\nb\n", 1000);
  ASSERT_TRUE(other.error().has_value());
  EXPECT_EQ(other.error()->message.find("LF"), std::string::npos) << other.error()->message;
}

TEST(RequestParser, TheServerAsAWholeIsATargetOfOptionsAlone) {
  RequestParser parser(kLimits);
  feed(parser, "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 1000);
  ASSERT_TRUE(parser.done());
  EXPECT_EQ(parser.head().path, "*");
}

TEST(RequestParser, KnowsOldClients) {
  RequestParser parser(kLimits);
  feed(parser, "GET http://proxy:80/a HTTP/1.0\r\n\r\n", 1000);
  ASSERT_TRUE(parser.done());
  EXPECT_FALSE(parser.head().http_1_1);
  EXPECT_FALSE(parser.head().keep_alive);
  EXPECT_EQ(parser.head().path, "/a");
}

}  // namespace
}  // namespace quire::server::http
