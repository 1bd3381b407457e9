#include "bench/serve/client.h"

#include <sys/resource.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"

namespace quire::bench {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::awaitable;
using asio::ip::tcp;
using Code = boost::system::error_code;

constexpr auto kReturnError = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 16 << 10;

// A connection and what was read of it beyond the last answer.
struct Line {
  explicit Line(asio::io_context& io) : socket(io) {}
  tcp::socket socket;
  beast::flat_buffer buffer;
  bool used = false;  // an answer came on it before
};
using LinePtr = std::unique_ptr<Line>;

// Each connection needs a file descriptor; the usual soft limit of 1024 is a historical one.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Takes in an answer as it arrives.
class Answer {
 public:
  Answer(LoadRecord& record, TimePoint sent)
      : record_(record), sent_(sent), reader_([this](std::string_view data) { take(data); }) {
    parser.body_limit(boost::none);
    parser.eager(true);
  }

  // Gives the buffer's bytes to the parser, and what it makes of them to the reader.
  Code parse(beast::flat_buffer& buffer) {
    now_ = Clock::now();
    Code code;
    while (buffer.size() > 0 && !parser.is_done()) {
      const size_t used = parser.put(buffer.data(), code);
      buffer.consume(used);
      if (parser.is_header_done()) take_body();
      if (code == http::error::need_more) return {};
      if (code || used == 0) return code;
    }
    return code;
  }

  void finish(bool may_be_empty) {
    if (!record_.error.empty()) return;
    if (chunks_ == 0 && may_be_empty && !record_.answer.finish.empty()) {
      record_.ttft = record_.latency = seconds_between(sent_, now_);
      record_.ok = true;
      return;
    }
    if (parser.get().result_int() != 200) {
      record_.error = "HTTP " + std::to_string(parser.get().result_int()) + " " +
                      parser.get().body().substr(0, 300);
    } else if (chunks_ == 0) {
      record_.error = "no token came";
    }
    if (record_.output_len == 0) record_.output_len = chunks_;
    record_.ok = record_.error.empty();
  }

  http::response_parser<http::string_body> parser;

 private:
  void take_body() {
    if (parser.get().result_int() != 200) return;  // an error's text is kept
    std::string& body = parser.get().body();
    reader_.feed(body);
    body.clear();
  }

  void take(std::string_view data) {
    StreamChunk chunk = parse_chunk(data, chunks_ == 0);
    if (!chunk.error.empty() && record_.error.empty()) record_.error = std::move(chunk.error);
    if (chunk.prompt_tokens >= 0) record_.prompt_len = chunk.prompt_tokens;
    if (chunk.completion_tokens >= 0) record_.output_len = chunk.completion_tokens;
    if (chunk.cached_tokens >= 0) record_.cached_len = chunk.cached_tokens;
    record_.answer.append(chunk.answer);
    if (!chunk.is_token) return;
    record_.latency = seconds_between(sent_, now_);
    if (chunks_++ == 0) {
      record_.ttft = record_.latency;
    } else {
      record_.itl.push_back(seconds_between(last_, now_));
    }
    last_ = now_;
  }

  LoadRecord& record_;
  TimePoint sent_, now_, last_;
  SseReader reader_;
  int64_t chunks_ = 0;
};

class LoadRun {
 public:
  LoadRun(const LoadOptions& options, const std::vector<LoadRequest>& requests)
      : options_(options), requests_(requests), records_(requests.size()) {}

  std::vector<LoadRecord> run() {
    raise_file_limit();
    resolve();
    start_ = Clock::now();
    size_t workers = requests_.size();
    if (options_.max_concurrency > 0)
      workers = std::min(workers, static_cast<size_t>(options_.max_concurrency));
    for (size_t i = 0; i < workers; ++i) asio::co_spawn(io_, work(), rethrow);
    io_.run();
    return std::move(records_);
  }

 private:
  static void rethrow(std::exception_ptr error) {
    if (error) std::rethrow_exception(error);
  }

  void resolve() {
    tcp::resolver resolver(io_);
    Code code;
    endpoints_ = resolver.resolve(options_.server.host, options_.server.port, code);
    if (code)
      throw LoadError("--base-url: " + options_.server.host + ":" + options_.server.port + ": " +
                      code.message());
  }

  // Requests are taken in order by whoever is free; each waits for its time.
  awaitable<void> work() {
    asio::steady_timer timer(io_);
    while (next_ < requests_.size()) {
      const size_t index = next_++;
      timer.expires_at(start_ + std::chrono::duration_cast<Clock::duration>(
                                    std::chrono::duration<double>(requests_[index].arrival)));
      co_await timer.async_wait(kReturnError);
      co_await send(index);
    }
  }

  awaitable<void> send(size_t index) {
    LoadRecord& record = records_[index];
    for (;;) {
      LinePtr line;
      if (!idle_.empty()) {
        line = std::move(idle_.back());
        idle_.pop_back();
      }
      record = {};
      record.prompt_len = requests_[index].prompt_len;
      const bool reused = line != nullptr;
      const TimePoint sent = Clock::now();
      record.start = seconds_between(start_, sent);
      const bool answered = co_await exchange(line, requests_[index], record, sent);
      // The server may have closed a connection that was idle: once more on a new one.
      if (answered || !reused) break;
    }
    if (!record.error.empty()) record.ok = false;
  }

  // Returns false if not a byte of an answer came.
  awaitable<bool> exchange(LinePtr& line, const LoadRequest& request, LoadRecord& record,
                           TimePoint sent) {
    if (!line) {
      line = std::make_unique<Line>(io_);
      const auto [code, endpoint] =
          co_await asio::async_connect(line->socket, endpoints_, kReturnError);
      if (code) {
        record.error = "cannot connect: " + code.message();
        co_return false;
      }
      Code ignored;
      line->socket.set_option(tcp::no_delay(true), ignored);
    }
    const std::string head = head_for(request);
    const std::array<asio::const_buffer, 2> message = {asio::buffer(head),
                                                       asio::buffer(request.body)};
    const auto [write_code, written] =
        co_await asio::async_write(line->socket, message, kReturnError);
    if (write_code) {
      record.error = "sending failed: " + write_code.message();
      co_return false;
    }
    co_return co_await receive(line, record, sent);
  }

  awaitable<bool> receive(LinePtr& line, LoadRecord& record, TimePoint sent) {
    Answer answer(record, sent);
    bool any = false;
    while (!answer.parser.is_done()) {
      const auto [code, count] =
          co_await line->socket.async_read_some(line->buffer.prepare(kReadBytes), kReturnError);
      Code failure = code;
      if (code == asio::error::eof && any) {
        answer.parser.put_eof(failure);
      } else if (!code) {
        any = true;
        line->buffer.commit(count);
        failure = answer.parse(line->buffer);
      }
      if (failure) {
        record.error = "the answer broke off: " + failure.message();
        co_return any;
      }
    }
    answer.finish(options_.takes_empty_answers);
    if (answer.parser.get().keep_alive()) idle_.push_back(std::move(line));
    co_return true;
  }

  std::string head_for(const LoadRequest& request) const {
    const std::string& path = request.path.empty() ? options_.path : request.path;
    std::string head = "POST " + options_.server.prefix + path +
                       " HTTP/1.1\r\nHost: " + options_.server.host + ":" + options_.server.port +
                       "\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\n" +
                       "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
    if (!options_.authorization.empty())
      head += "Authorization: " + options_.authorization + "\r\n";
    return head + "\r\n";
  }

  const LoadOptions& options_;
  const std::vector<LoadRequest>& requests_;
  std::vector<LoadRecord> records_;
  asio::io_context io_{1};  // one thread: no locks
  tcp::resolver::results_type endpoints_;
  TimePoint start_;
  size_t next_ = 0;
  std::vector<LinePtr> idle_;
};

}  // namespace

ServerAddress parse_base_url(const std::string& url) {
  const auto refuse = [&](const std::string& why) {
    return LoadError("--base-url " + url + ": " + why + "; write http://HOST:PORT");
  };
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://")) throw refuse("https is not supported");
  if (!url.starts_with(kScheme)) throw refuse("it is no http address");
  ServerAddress address;
  const size_t slash = url.find('/', kScheme.size());
  std::string place = url.substr(kScheme.size(), slash - kScheme.size());
  if (slash != url.npos) address.prefix = url.substr(slash);
  while (address.prefix.ends_with('/')) address.prefix.pop_back();
  const size_t bracket = place.find(']');  // [::1]:8000
  const size_t colon = place.find(':', bracket == place.npos ? 0 : bracket);
  address.port = colon == place.npos ? "80" : place.substr(colon + 1);
  address.host = place.substr(0, colon);
  if (address.host.starts_with('[') && address.host.ends_with(']'))
    address.host = address.host.substr(1, address.host.size() - 2);
  const bool digits =
      !address.port.empty() && address.port.find_first_not_of("0123456789") == std::string::npos;
  if (address.host.empty() || !digits) throw refuse("host or port is missing");
  return address;
}

std::vector<LoadRecord> run_load(const LoadOptions& options,
                                 const std::vector<LoadRequest>& requests) {
  return LoadRun(options, requests).run();
}

std::string http_get(const LoadOptions& options, const std::string& path) {
  asio::io_context io;
  tcp::socket socket(io);
  tcp::resolver resolver(io);
  const auto refuse = [&](const std::string& why) {
    return LoadError("http://" + options.server.host + ":" + options.server.port +
                     options.server.prefix + path + ": " + why);
  };
  Code code;
  asio::connect(socket, resolver.resolve(options.server.host, options.server.port, code), code);
  if (code) throw refuse("no server answers: " + code.message());
  std::string head = "GET " + options.server.prefix + path +
                     " HTTP/1.1\r\nHost: " + options.server.host + "\r\nConnection: close\r\n";
  if (!options.authorization.empty()) head += "Authorization: " + options.authorization + "\r\n";
  asio::write(socket, asio::buffer(head + "\r\n"), code);
  http::response_parser<http::string_body> parser;
  beast::flat_buffer buffer;
  while (!code && !parser.is_done()) {
    buffer.commit(socket.read_some(buffer.prepare(kReadBytes), code));
    if (code == asio::error::eof) {
      parser.put_eof(code);
      break;
    }
    while (!code && buffer.size() > 0 && !parser.is_done()) {
      buffer.consume(parser.put(buffer.data(), code));
    }
    if (code == http::error::need_more) code = {};
  }
  if (code) throw refuse(code.message());
  if (parser.get().result_int() != 200)
    throw refuse("HTTP " + std::to_string(parser.get().result_int()));
  return parser.get().body();
}

std::string served_model(const LoadOptions& options) {
  const auto answer = parse_json(http_get(options, "/v1/models"));
  const json::object* object = answer ? answer->if_object() : nullptr;
  const json::value* data = object ? object->if_contains("data") : nullptr;
  if (data && data->is_array() && !data->get_array().empty())
    if (const json::object* first = data->get_array()[0].if_object())
      if (const json::value* id = first->if_contains("id"); id && id->is_string())
        return std::string(id->get_string());
  throw LoadError("/v1/models names no model; give --model");
}

}  // namespace quire::bench
