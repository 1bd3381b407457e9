#include "server/http/request_parser.h"

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "server/http/host_header.h"
#include "server/http/request_id.h"

namespace quire::server::http {
namespace {

namespace beast_http = boost::beast::http;

// Chunk extensions and trailers have no limit of their own in Beast, and nothing here reads them.
// Of one request they may be this long together.
constexpr size_t kMaxChunkExtras = 16u << 10;
// What Beast keeps of a short trailer, for each of its bytes.
constexpr size_t kKeptOfExtra = 25;
// Of a head: the request line, 128 headers and the empty line. Beast takes some 100 bytes for a
// header of 5, before anybody knows whose they are.
constexpr size_t kMaxHeadLines = 130;
// That many digits hold any size; more are zeros in front of it.
constexpr size_t kChunkSizeDigits = 16;
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

// Whether a line of the head ends with LF alone. That may be a line end for one parser and not for
// another; Beast takes it for none, and its errors do not say so, or it waits for more.
bool has_bare_newline(std::string_view head) {
  for (size_t line = 0;;) {
    const size_t end = head.find('\n', line);
    if (end == std::string_view::npos) return false;
    if (end == line || head[end - 1] != '\r') return true;
    if (end == line + 1) return false;  // an empty line: the body is behind it
    line = end + 1;
  }
}

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

// How many bytes of a chunk's head are neither its size nor line ends around it: extensions, zeros,
// and behind the last chunk trailers.
size_t chunk_extras(std::string_view head) {
  if (head.starts_with("\r\n")) head.remove_prefix(2);  // of the chunk before
  const size_t digits = std::min(head.find_first_not_of("0123456789abcdefABCDEF"), head.size());
  head.remove_prefix(std::min(digits, kChunkSizeDigits));
  return head.size() - std::min<size_t>(head.size(), 2);
}

// Of a header that decides something there is one reading only: two of them that differ would be
// read by their first here and by their last elsewhere.
constexpr std::string_view kSingleHeaders[] = {"content-type", "content-length", "authorization",
                                               "x-api-key"};

// The name of one that is there twice and differs; empty if there is none.
std::string_view ambiguous_header(const RequestHead& head) {
  for (const std::string_view name : kSingleHeaders) {
    const std::string_view first = head.header(name);
    for (const auto& [key, value] : head.headers)
      if (key == name && value != first) return name;
  }
  return {};
}

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
size_t RequestParser::held_bytes() const { return body_bytes() + kKeptOfExtra * chunk_extras_; }

void RequestParser::fail(int status, std::string message) {
  error_ = Error{status, std::move(message)};
}

// As many whole lines as the head may still have, or all.
std::string_view RequestParser::next_head_lines(std::string_view data) const {
  size_t end = 0;
  for (size_t line = head_lines_; line < kMaxHeadLines; ++line) {
    const size_t found = data.find('\n', end);
    if (found == std::string_view::npos) return data;
    end = found + 1;
  }
  return data.substr(0, end);
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
    const std::string_view all = data.substr(used);
    const std::string_view rest = had_head ? all : next_head_lines(all);
    const size_t body_before = body_bytes();
    const size_t n = impl_->parser.put(boost::asio::buffer(rest.data(), rest.size()), code);
    used += n;
    if (!had_head) {
      head_bytes_ += n;
      look_at_head(rest.substr(0, n));
    } else if (body_bytes() == body_before) {
      chunk_extras_ += chunk_extras(rest.substr(0, n));
    }
    const bool head_done = impl_->parser.is_header_done();
    const size_t head_bytes = head_bytes_ + (head_done ? 0 : rest.size() - n + 1);
    if (!had_head && code && code != beast_http::error::body_limit && has_bare_newline(rest)) {
      fail(400, "Malformed HTTP request: a line ends with LF in place of CR LF");
    } else if (code && code != beast_http::error::need_more) {
      error_ = describe(code);
      if (code == beast_http::error::body_limit && !had_head) keep_target();
    } else if (folded_) {
      fail(400, "Malformed HTTP request: a header goes on in a second line");
    } else if (!had_head && head_bytes > limits_.header_bytes) {
      error_ = describe(beast_http::error::header_limit);
    } else if (!had_head && !head_done && rest.size() < all.size()) {
      fail(431,
           "The request's head has more than " + std::to_string(kMaxHeadLines - 2) + " headers");
    } else if (!had_head && head_done) {
      read_head();
      break;
    } else if (had_head && chunk_extras_ + (code ? rest.size() - n : 0) > kMaxChunkExtras) {
      fail(400, "Malformed HTTP request: too many bytes of chunk extensions or trailers");
    } else if (n == 0) {
      break;
    }
  }
  return used;
}

// Beast joins folded lines (RFC 9112, section 5.2), other parsers end the header at the first:
// two readings of one request.
void RequestParser::look_at_head(std::string_view head_bytes) {
  for (const char c : head_bytes) {
    folded_ |= last_head_byte_ == '\n' && (c == ' ' || c == '\t');
    head_lines_ += c == '\n';
    last_head_byte_ = c;
  }
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
    head.headers.emplace_back(lower_case(view(field.name_string())), view(field.value()));
    hosts += head.headers.back().first == "host";
  }
  // With any other coding Beast would take the body for the next request; and who speaks HTTP/1.0
  // may know no coding at all, and see the end elsewhere (RFC 9112, section 6.1).
  if (const auto coding = message.find("Transfer-Encoding"); coding != message.end()) {
    if (lower_case(view(coding->value())) != "chunked")
      return fail(501, "Only the transfer coding `chunked` is supported");
    if (!head.http_1_1) return fail(400, "Malformed HTTP request: HTTP/1.0 has no transfer coding");
  }
  if (head.http_1_1 ? hosts != 1 : hosts > 1)
    return fail(400, "Malformed HTTP request: exactly one Host header is needed");
  if (!is_host_value(head.header("host")))
    return fail(400, "Malformed HTTP request: the Host header is not HOST or HOST:PORT");
  if (const auto name = ambiguous_header(head); !name.empty())
    return fail(400, "Malformed HTTP request: two different headers `" + std::string(name) + "`");

  if (!read_target(head)) return fail(400, "Malformed HTTP request: bad target");
  head.id = choose_request_id(head);
  head_ = std::move(head);
}

bool RequestParser::read_target(RequestHead& head) const {
  const std::string_view given = view(impl_->parser.get().target());
  if (given == "*" && head.method == "OPTIONS") return head.path = given, true;
  const std::string_view target = origin_form(given);
  const size_t question = target.find('?');
  auto path = percent_decode(target.substr(0, question));
  if (!path || path->empty() || path->find('\0') != std::string::npos) return false;
  head.path = std::move(*path);
  if (question != std::string_view::npos) head.query = target.substr(question + 1);
  return true;
}

// Of a body whose length alone is too much: Beast stops before it looks at the rest of the head.
void RequestParser::keep_target() {
  RequestHead head;
  head.method = view(impl_->parser.get().method_string());
  head.http_1_1 = impl_->parser.get().version() >= 11;
  head.id = choose_request_id(head);
  if (read_target(head)) head_ = std::move(head);
}

Request RequestParser::take() {
  Request request;
  request.head = std::move(*head_);
  request.body = std::move(impl_->parser.get().body());
  return request;
}

}  // namespace quire::server::http
