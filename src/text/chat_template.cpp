#include "text/chat_template.h"

#include <ctime>

#include "base/error.h"
#include "text/rust_bridge.h"

namespace quire::text {

struct ChatTemplate::Impl {
  rust::Box<rs::ChatTemplates> rust;
};

LocalTime LocalTime::now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm tm{};
  localtime_r(&seconds, &tm);
  return {.year = tm.tm_year + 1900,
          .month = tm.tm_mon + 1,
          .day = tm.tm_mday,
          .hour = tm.tm_hour,
          .minute = tm.tm_min,
          .second = tm.tm_sec};
}

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

std::shared_ptr<const ChatTemplate> ChatTemplate::load(const std::filesystem::path& model_dir) {
  return load(formats::ModelFiles{.origin = model_dir.string()});
}

std::shared_ptr<const ChatTemplate> ChatTemplate::load(const formats::ModelFiles& files) {
  try {
    auto found = rs::find_templates(bridge_files(files));
    if (!rs::has_templates(*found)) return nullptr;
    auto impl = std::make_unique<Impl>(Impl{rs::take_templates(std::move(found))});
    return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(impl)));
  } catch (const rust::Error& e) {
    throw LoadError(e.what());
  }
}

Result<std::shared_ptr<const ChatTemplate>, std::string> ChatTemplate::parse(
    std::string_view source, std::string_view special_tokens) {
  return bridged([&] {
    auto impl = std::make_unique<Impl>(
        Impl{rs::template_from_source(as_bytes(source), as_bytes(special_tokens))});
    return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(impl)));
  });
}

Result<std::string, std::string> ChatTemplate::render(const ChatTemplateInput& input) const {
  const LocalTime now = input.now ? *input.now : LocalTime::now();
  const rs::RenderInput bridge_input{
      .messages = as_bytes(input.messages),
      .tools = as_bytes(input.tools),
      .documents = as_bytes(input.documents),
      .kwargs = as_bytes(input.kwargs),
      .add_generation_prompt = input.add_generation_prompt,
      .continue_final_message = input.continue_final_message,
      .now = {now.year, now.month, now.day, now.hour, now.minute, now.second},
      .max_work = input.limits.work,
      .max_output_bytes = input.limits.output_bytes,
      .max_fuel = input.limits.fuel,
      .max_milliseconds = input.limits.milliseconds,
      .budget = reinterpret_cast<size_t>(input.budget),
  };
  return bridged([&] { return std::string(rs::render(*impl_->rust, bridge_input)); });
}

bool ChatTemplate::reads(std::string_view variable) const {
  return rs::template_reads(*impl_->rust, as_bytes(variable));
}

std::string ChatTemplate::source() const { return std::string(rs::template_source(*impl_->rust)); }

}  // namespace quire::text
