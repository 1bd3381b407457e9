#pragma once
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire::server::http {

// The request line and headers of an HTTP request. `path` is percent-decoded and has no query.
struct RequestHead {
  std::string method;
  std::string path;
  std::string query;
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::optional<uint64_t> content_length;
  bool chunked = false;
  bool http_1_1 = true;
  bool keep_alive = true;
  // The client's X-Request-Id, or one of ours; where the body brings one, perhaps that.
  std::string id;

  // The first header of that (lower-case) name; empty if there is none.
  std::string_view header(std::string_view name) const;
};

struct Request {
  RequestHead head;
  std::string body;
  std::string peer;    // address and port of the client, for the log
  std::string client;  // whom limits of an address count for; see client_of()
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

std::string_view reason_phrase(int status);

// "Sun, 06 Nov 1994 08:49:37 GMT", for the Date header.
std::string http_date(std::time_t seconds);

// The bytes of a response's head, with the Date of now. `body_bytes` absent: the length is not
// known; the body comes in chunks (HTTP/1.1) or ends with the connection (HTTP/1.0).
std::string format_head(const Response& response, std::optional<size_t> body_bytes, bool http_1_1,
                        bool keep_alive);

// ASCII letters in lower case; other bytes as they are.
std::string lower_case(std::string_view text);

// "%41" -> "A". Nothing if a percent sign is not followed by two hex digits.
std::optional<std::string> percent_decode(std::string_view text);

}  // namespace quire::server::http
