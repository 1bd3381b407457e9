#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace quire::server {

struct ClientResponse {
  int status = 0;                              // 0: the connection ended before an answer
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool complete = false;

  json::value json() const;
  // The data lines of an event stream, without "[DONE]".
  std::vector<json::value> events() const;
  bool ends_with_done() const;
};

// A blocking HTTP client on a plain socket, for tests: it can also misbehave.
class TestClient {
 public:
  // `from`: the client's own address; any of 127.0.0.0/8. `segment`: the largest packet it takes.
  explicit TestClient(uint16_t port, const char* from = nullptr, int segment = 0);
  ~TestClient();
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  void send(std::string_view bytes);
  // False if the server has closed the connection.
  bool try_send(std::string_view bytes);
  ClientResponse receive(bool head_only = false);  // skips interim responses
  ClientResponse get(const std::string& path, const std::string& headers = "");
  ClientResponse post(const std::string& path, const std::string& body,
                      const std::string& headers = "");
  static std::string post_text(const std::string& path, const std::string& body,
                               const std::string& headers = "");
  // Reads until `text` has arrived; false if the connection ends before.
  bool read_until(std::string_view text);
  bool has_input();         // something to read, or the end; does not wait
  bool closed_by_server();  // reads and drops what is left
  void set_receive_buffer(int bytes);
  void end_sending();  // and goes on receiving
  void close();
  bool read_some(size_t bytes = 16384);
  std::string& received() { return received_; }

 private:
  int socket_ = -1;
  std::string received_;
};

}  // namespace quire::server
