#include "server/test_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"

namespace quire::server {
namespace {

// The log's library makes its registry when it is first used. ThreadSanitizer, which does not see
// inside it, calls that a race where two threads of a server are the first: here none is yet.
[[maybe_unused]] const auto kLog = spdlog::default_logger();

}  // namespace

json::value ClientResponse::json() const {
  auto value = parse_json(body);
  QUIRE_CHECK(value.ok()) << value.error() << ": " << body;
  return std::move(*value);
}

std::vector<json::value> ClientResponse::events() const {
  std::vector<json::value> out;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    QUIRE_CHECK(end != std::string::npos) << "a cut event: " << body.substr(at);
    const std::string event = body.substr(at, end - at);
    at = end + 2;
    if (event.starts_with(":") || event == "data: [DONE]") continue;
    QUIRE_CHECK(event.starts_with("data: ")) << event;
    auto value = parse_json(std::string_view(event).substr(6));
    QUIRE_CHECK(value.ok()) << event;
    out.push_back(std::move(*value));
  }
  return out;
}

bool ClientResponse::ends_with_done() const { return body.ends_with("data: [DONE]\n\n"); }

TestClient::TestClient(uint16_t port, const char* from, int segment)
    : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (from != nullptr) {
    address.sin_addr.s_addr = ::inet_addr(from);
    QUIRE_CHECK(::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  }
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (segment > 0) {
    ::setsockopt(socket_, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment);
    set_receive_buffer(4096);
  }
  timeval timeout{120, 0};  // a test that hangs should fail
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  QUIRE_CHECK(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
}

TestClient::~TestClient() { close(); }

void TestClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void TestClient::set_receive_buffer(int bytes) {
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
}

void TestClient::end_sending() { ::shutdown(socket_, SHUT_WR); }

bool TestClient::try_send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

void TestClient::send(std::string_view bytes) { QUIRE_CHECK(try_send(bytes)); }

bool TestClient::read_some(size_t bytes) {
  char buffer[16384];
  const ssize_t n = ::recv(socket_, buffer, std::min(bytes, sizeof buffer), 0);
  if (n <= 0) return false;
  received_.append(buffer, static_cast<size_t>(n));
  return true;
}

bool TestClient::read_until(std::string_view text) {
  while (received_.find(text) == std::string::npos)
    if (!read_some()) return false;
  return true;
}

bool TestClient::has_input() {
  char byte;
  return !received_.empty() || ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

bool TestClient::closed_by_server() {
  char buffer[16384];
  ssize_t n;
  do {
    n = ::recv(socket_, buffer, sizeof buffer, 0);
  } while (n > 0);
  return n == 0 || errno == ECONNRESET;
}

ClientResponse TestClient::receive(bool head_only) {
  ClientResponse out;
  constexpr std::string_view kInterim = "HTTP/1.1 100 Continue\r\n\r\n";
  do {
    if (received_.starts_with(kInterim)) received_.erase(0, kInterim.size());
    if (!read_until("\r\n\r\n")) return out;
  } while (received_.starts_with(kInterim));
  const size_t head_end = received_.find("\r\n\r\n") + 4;
  const std::string head = received_.substr(0, head_end);
  received_.erase(0, head_end);
  out.status = std::stoi(head.substr(9, 3));
  for (size_t at = head.find("\r\n") + 2; at + 2 < head.size();) {
    const size_t end = head.find("\r\n", at), colon = head.find(": ", at);
    std::string name = head.substr(at, colon - at);
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    out.headers[name] = head.substr(colon + 2, end - colon - 2);
    at = end + 2;
  }
  out.complete = true;
  if (head_only) return out;
  const auto need = [&](size_t bytes) {
    while (received_.size() < bytes)
      if (!read_some()) return out.complete = false;
    return true;
  };
  const bool chunked = out.headers.contains("transfer-encoding");
  if (out.headers.contains("content-length")) {
    const size_t length = std::stoul(out.headers["content-length"]);
    if (!need(length)) return out;
    out.body = received_.substr(0, length);
    received_.erase(0, length);
  } else if (chunked) {
    for (;;) {
      if (!read_until("\r\n")) return out.complete = false, out;
      const size_t line = received_.find("\r\n");
      const size_t size = std::stoul(received_.substr(0, line), nullptr, 16);
      if (!need(line + 2 + size + 2)) return out;
      out.body += received_.substr(line + 2, size);
      received_.erase(0, line + 2 + size + 2);
      if (size == 0) return out;
    }
  } else {
    while (read_some()) {
    }
    out.body = std::move(received_);
  }
  return out;
}

ClientResponse TestClient::get(const std::string& path, const std::string& headers) {
  send("GET " + path + " HTTP/1.1\r\nHost: test\r\n" + headers + "\r\n");
  return receive();
}

std::string TestClient::post_text(const std::string& path, const std::string& body,
                                  const std::string& headers) {
  return "POST " + path + " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n" +
         "Content-Length: " + std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body;
}

ClientResponse TestClient::post(const std::string& path, const std::string& body,
                                const std::string& headers) {
  send(post_text(path, body, headers));
  return receive();
}

}  // namespace quire::server
