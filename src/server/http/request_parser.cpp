#include "server/http/request_parser.h"

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

namespace quire::server::http {
namespace {

namespace beast_http = boost::beast::http;

// A chunk's head and the trailers have no limit of their own in Beast; it asks for more until the
// line is complete.
constexpr size_t kMaxChunkHead = 16u << 10;
// Some clients send a stray line end after a body.
constexpr int kMaxStrayNewlines = 4;

RequestParser::Error describe(const boost::system::error_code& code) {
  using E = beast_http::error;
  if (code == E::header_limit) return {431, "The request's head is too large"};
  if (code == E::body_limit || code == E::buffer_overflow)
    return {413, "The request's body is too large"};
  if (code == E::bad_version) return {505, "Only HTTP/1.0 and HTTP/1.1 are supported"};
  return {400, "Malformed HTTP request: " + code.message()};
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

// "/path?query" of any of the request-target's forms; empty if it has no path.
std::string_view origin_form(std::string_view target) {
  if (target.starts_with("http://") || target.starts_with("https://")) {
    const size_t slash = target.find('/', target.find("//") + 2);
    return slash == std::string_view::npos ? "/" : target.substr(slash);
  }
  return target.starts_with('/') ? target : std::string_view();
}

}  // namespace

struct RequestParser::Impl {
  beast_http::request_parser<beast_http::string_body> parser;
};

RequestParser::RequestParser(const Limits& limits)
    : limits_(limits), impl_(std::make_unique<Impl>()) {
  // Beast's own limit depends on how the bytes arrive; put() has the exact one, which comes first.
  impl_->parser.header_limit(static_cast<uint32_t>(2 * limits.header_bytes));
  impl_->parser.body_limit(limits.body_bytes);
}

RequestParser::~RequestParser() = default;

bool RequestParser::started() const { return impl_->parser.got_some(); }
bool RequestParser::done() const { return !error_ && has_head() && impl_->parser.is_done(); }
size_t RequestParser::body_bytes() const { return impl_->parser.get().body().size(); }

void RequestParser::fail(int status, std::string message) {
  error_ = Error{status, std::move(message)};
}

size_t RequestParser::put(std::string_view data) {
  size_t used = 0;
  while (!started() && skipped_newlines_ < kMaxStrayNewlines &&
         data.substr(used).starts_with("\r\n")) {
    used += 2;
    ++skipped_newlines_;
  }
  if (!started() && data.substr(used) == "\r") return used;  // perhaps half of one
  while (used < data.size() && !error_ && !impl_->parser.is_done()) {
    const bool had_head = has_head();
    boost::system::error_code code;
    const std::string_view rest = data.substr(used);
    const size_t n = impl_->parser.put(boost::asio::buffer(rest.data(), rest.size()), code);
    used += n;
    if (!had_head) head_bytes_ += n;
    const bool head_done = impl_->parser.is_header_done();
    const size_t head_bytes = head_bytes_ + (head_done ? 0 : rest.size() - n + 1);
    if (code && code != beast_http::error::need_more) {
      error_ = describe(code);
    } else if (!had_head && head_bytes > limits_.header_bytes) {
      error_ = describe(beast_http::error::header_limit);
    } else if (!had_head && head_done) {
      read_head();
      break;
    } else if (had_head && code && rest.size() - n > kMaxChunkHead) {
      fail(400, "Malformed HTTP request: a chunk's head is too long");
    } else if (n == 0) {
      break;
    }
  }
  return used;
}

void RequestParser::read_head() {
  const auto& message = impl_->parser.get();
  RequestHead head;
  head.method = view(message.method_string());
  head.http_1_1 = message.version() >= 11;
  head.keep_alive = message.keep_alive();
  head.chunked = impl_->parser.chunked();
  if (const auto length = impl_->parser.content_length()) head.content_length = *length;
  size_t hosts = 0;
  for (const auto& field : message) {
    head.headers.emplace_back(lower(view(field.name_string())), view(field.value()));
    hosts += head.headers.back().first == "host";
  }
  // With any other coding Beast would take the body for the next request.
  const std::string_view coding = head.header("transfer-encoding");
  if (!coding.empty() && lower(coding) != "chunked")
    return fail(501, "Only the transfer coding `chunked` is supported");
  if (head.http_1_1 ? hosts != 1 : hosts > 1)
    return fail(400, "Malformed HTTP request: exactly one Host header is needed");

  const std::string_view target = origin_form(view(message.target()));
  const size_t question = target.find('?');
  auto path = percent_decode(target.substr(0, question));
  if (!path || path->empty() || path->find('\0') != std::string::npos)
    return fail(400, "Malformed HTTP request: bad target");
  head.path = std::move(*path);
  if (question != std::string_view::npos) head.query = target.substr(question + 1);
  head_ = std::move(head);
}

Request RequestParser::take() {
  return Request{std::move(*head_), std::move(impl_->parser.get().body()), {}};
}

}  // namespace quire::server::http
