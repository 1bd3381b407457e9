#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace quire::server::http {

// Parses one HTTP/1.x request from bytes that arrive in pieces of any size.
class RequestParser {
 public:
  struct Limits {
    size_t header_bytes = 16u << 10;
    size_t body_bytes = 32u << 20;
  };
  // What the client did wrong, as a status and a sentence. The connection cannot go on after it.
  struct Error {
    int status = 400;
    std::string message;
  };

  explicit RequestParser(const Limits& limits);
  ~RequestParser();

  // Uses bytes from the front of `data` and returns how many. Bytes that were not used must be
  // presented again with more behind them; those after a complete request belong to the next one.
  // Stops after the head, so that it can be judged before a body is read.
  size_t put(std::string_view data);

  bool started() const;  // has used a byte
  bool has_head() const { return head_.has_value(); }
  bool done() const;
  const std::optional<Error>& error() const { return error_; }
  const RequestHead& head() const { return *head_; }
  size_t body_bytes() const;
  size_t held_bytes() const;  // with what is kept of chunk extensions and trailers
  // The whole request; only once, and only when done.
  Request take();

 private:
  struct Impl;
  std::string_view next_head_lines(std::string_view data) const;
  void look_at_head(std::string_view head_bytes);
  void read_head();
  bool read_target(RequestHead& head) const;
  void keep_target();
  void fail(int status, std::string message);

  Limits limits_;
  std::unique_ptr<Impl> impl_;
  std::optional<RequestHead> head_;
  std::optional<Error> error_;
  size_t head_bytes_ = 0, head_lines_ = 0, chunk_extras_ = 0;
  char last_head_byte_ = 0;
  bool folded_ = false;
  int skipped_newlines_ = 0;
};

}  // namespace quire::server::http
