#include "server/left_out.h"

#include <spdlog/spdlog.h>

#include "server/anthropic/parse.h"

namespace quire::server {
namespace {

constexpr const char* kUnused = "fields of a generation, which change nothing here";

void log_names(const http::Request& http_request, const char* what,
               const openai::UnknownFields& names) {
  if (names.total > 0)
    spdlog::info("{} id={} has {}: {}", http_request.peer, http_request.head.id, what,
                 names.text());
}

// Of the request's own template nothing is known.
openai::UnknownFields unread_kwargs(const openai::ChatInput& chat, const ModelText& text) {
  openai::UnknownFields unread;
  if (chat.chat_template || !text.chat_template) return unread;
  for (const auto& entry : chat.template_kwargs) {
    const std::string_view name(entry.key().data(), entry.key().size());
    if (!text.chat_template->reads(name)) unread.add(name);
  }
  return unread;
}

}  // namespace

void LeftOutLog::log_chat(const http::Request& http_request, const openai::ChatInput& chat) {
  log_names(http_request, "keys in messages that only the chat template may read",
            chat.message_keys);
  log_names(http_request, "keys in what is said, which are ignored", chat.unread_keys);
  log_names(http_request, "`chat_template_kwargs` that the chat template does not read",
            unread_kwargs(chat, text_));
}

void LeftOutLog::log(const http::Request& http_request, const openai::GenerationRequest& request) {
  log_names(http_request, "unknown fields, which are ignored", request.unknown_fields);
  if (request.left_out_tools.total > 0) {
    spdlog::warn("{} id={} has tools that cannot be offered here, which are left out: {}",
                 http_request.peer, http_request.head.id, request.left_out_tools.text());
  }
  if (request.left_out_billing_header && !told_of_billing_header_.exchange(true)) {
    spdlog::info(
        "{} id={} has a system block \"{} ..\": such blocks differ with every request and "
        "are left out, so that prompts are found in the prefix cache "
        "(--keep-billing-header keeps them; this is said once)",
        http_request.peer, http_request.head.id, anthropic::kBillingHeader);
  }
}

void LeftOutLog::log(const http::Request& http_request, const openai::ChatRequest& request) {
  log(http_request, static_cast<const openai::GenerationRequest&>(request));
  log_chat(http_request, request.chat);
}

void LeftOutLog::log(const http::Request& http_request, const openai::TokenizeRequest& request) {
  log_names(http_request, kUnused, request.unused_fields);
  if (const auto* chat = std::get_if<openai::ChatInput>(&request.input))
    log_chat(http_request, *chat);
}

void LeftOutLog::log(const http::Request& http_request, const openai::DetokenizeRequest& request) {
  log_names(http_request, kUnused, request.unused_fields);
}

}  // namespace quire::server
