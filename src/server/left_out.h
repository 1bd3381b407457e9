#pragma once
#include <atomic>

#include "server/http/message.h"
#include "server/openai/request.h"
#include "server/options.h"

namespace quire::server {

// Writes a line into the log for each kind of thing that a request has and nothing here uses:
// fields, keys and tools. For any thread.
class LeftOutLog {
 public:
  // `text`: of the model; it must outlive this.
  explicit LeftOutLog(const ModelText& text) : text_(text) {}

  void log(const http::Request& http_request, const openai::GenerationRequest& request);
  void log(const http::Request& http_request, const openai::ChatRequest& request);
  void log(const http::Request& http_request, const openai::TokenizeRequest& request);
  void log(const http::Request& http_request, const openai::DetokenizeRequest& request);

 private:
  void log_chat(const http::Request& http_request, const openai::ChatInput& chat);

  const ModelText& text_;
  std::atomic<bool> told_of_billing_header_{false};
};

}  // namespace quire::server
