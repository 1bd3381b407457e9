// What Anthropic's clients send as `system` and `messages` becomes the messages of a chat.
#include "base/printable.h"
#include "server/anthropic/parse.h"
#include "server/openai/turn.h"

namespace quire::server::anthropic {
namespace {

using openai::as_view;
using openai::Fields;
using openai::JoinedText;

constexpr size_t kMaxNameBytes = 40;                   // of a client's own, in an error
constexpr std::string_view kBlockPath = "content[].";  // of keys, for the log

// Hands on what is at `key`: a text is a block of text, too. `on_block` gets the others' types, and
// says whether it knows them. Keys of blocks of text that nobody reads are added to `unread`.
template <class OnText, class OnBlock>
void read_blocks(Fields& owner, std::string_view key, openai::UnknownFields& unread,
                 const OnText& on_text, const OnBlock& on_block) {
  const json::value* content = owner.find(key);
  if (content == nullptr) return owner.missing(key);
  if (content->is_string()) return on_text(as_view(content->get_string()));
  if (!content->is_array()) return owner.mistyped(key, "must be a string or a list of blocks");
  const json::array& list = content->get_array();
  for (size_t i = 0; i < list.size() && owner.ok(); ++i) {
    const std::string path = owner.name(key) + "[" + std::to_string(i) + "]";
    if (!list[i].is_object())
      return owner.fail(
          ApiError{400, "`" + path + "` must be an object", path, openai::kInvalidType});
    Fields block(list[i].get_object(), path + ".");
    const std::string type = block.string("type").value_or("");
    if (type == "text") {
      const auto text = block.string("text");
      if (!text) block.missing("text");
      on_text(text.value_or(""));
      unread.add_others(block.all(), {"type", "text", "cache_control"}, kBlockPath);
    } else if (!on_block(type, block)) {
      block.fail("type",
                 "\"" + printable(type, kMaxNameBytes) + "\" is not supported" +
                     (type == "image" || type == "document" ? ": this model reads text only" : ""));
    }
    if (!block.ok()) return owner.fail(block.error());
  }
}

// Of blocks that are texts, or have a text inside.
std::string text_of(Fields& owner, std::string_view key, openai::UnknownFields& unread);

void check_citations(Fields& block) {
  const json::object* citations = block.object("citations");
  if (citations == nullptr) return;
  Fields inner(*citations, block.name("citations."));
  if (inner.flag("enabled", false))
    inner.fail("enabled", "must be false: answers have no citations here");
  if (!inner.ok()) block.fail(inner.error());
}

// Found text, and documents that are text.
bool add_document(const std::string& type, Fields& block, JoinedText& out,
                  openai::UnknownFields& unread) {
  check_citations(block);
  if (type == "search_result") {
    for (const char* key : {"title", "source"})
      if (const auto text = block.string(key)) out.add(*text);
    out.add(text_of(block, "content", unread));
    unread.add_others(block.all(),
                      {"type", "title", "source", "content", "citations", "cache_control"},
                      kBlockPath);
    return true;
  }
  const json::object* source = type == "document" ? block.object("source") : nullptr;
  if (source == nullptr) return false;
  Fields inner(*source, block.name("source."));
  const std::string kind = inner.string("type").value_or("");
  if (kind != "text" && kind != "content") return false;
  for (const char* key : {"title", "context"})
    if (const auto text = block.string(key)) out.add(*text);
  if (kind == "content") {
    out.add(text_of(inner, "content", unread));
  } else if (const auto data = inner.string("data")) {
    out.add(*data);
  } else {
    inner.missing("data");
  }
  if (!inner.ok()) block.fail(inner.error());
  unread.add_others(block.all(),
                    {"type", "title", "context", "source", "citations", "cache_control"},
                    kBlockPath);
  unread.add_others(inner.all(), {"type", "media_type", kind == "content" ? "content" : "data"},
                    "content[].source.");
  return true;
}

std::string text_of(Fields& owner, std::string_view key, openai::UnknownFields& unread) {
  JoinedText text;
  read_blocks(
      owner, key, unread, [&](std::string_view piece) { text.add(piece); },
      [&](const std::string& type, Fields& block) {
        return add_document(type, block, text, unread);
      });
  return text.take();
}

class TurnReader {
 public:
  TurnReader(Fields& fields, openai::ChatInput& out) : fields_(fields), out_(out) {}

  // True: a billing header was left out.
  bool system(bool keep_billing_header);
  void messages();

 private:
  void user(Fields& message);
  void assistant(Fields& message);
  void add(std::string_view role, const std::string& content);

  Fields& fields_;
  openai::ChatInput& out_;
};

// Turns of the user that follow one another are one, as in Anthropic's API; so are system texts.
void TurnReader::add(std::string_view role, const std::string& content) {
  openai::join_message(out_.messages, role, content);
}

bool TurnReader::system(bool keep_billing_header) {
  if (!fields_.has("system")) return false;
  JoinedText text;
  bool left_out = false;
  const bool is_list = fields_.find("system")->is_array();
  read_blocks(
      fields_, "system", out_.unread_keys,
      [&](std::string_view piece) {
        const bool is_header = is_list && piece.starts_with(kBillingHeader);
        if (is_header && !keep_billing_header) {
          left_out = true;
        } else {
          text.add(piece);
        }
      },
      [](const std::string&, Fields&) { return false; });
  if (text.any()) add("system", text.take());
  return left_out;
}

// Results of tools become messages of their own, in their order.
void TurnReader::user(Fields& message) {
  JoinedText text;
  bool any = false;
  const auto flush = [&] {
    if (text.any()) add("user", text.take());
  };
  read_blocks(
      message, "content", out_.unread_keys,
      [&](std::string_view piece) {
        text.add(piece);
        any = true;
      },
      [&](const std::string& type, Fields& block) {
        any = true;
        if (type != "tool_result") return add_document(type, block, text, out_.unread_keys);
        flush();
        const auto id = block.string("tool_use_id");
        if (!id) block.missing("tool_use_id");
        std::string result =
            block.has("content") ? text_of(block, "content", out_.unread_keys) : "";
        // Templates have no other place for it.
        if (block.flag("is_error", false)) result = result.empty() ? "Error" : "Error: " + result;
        openai::add_result(out_.messages, id.value_or(""), result);
        out_.unread_keys.add_others(block.all(),
                                    {"type", "tool_use_id", "content", "is_error", "cache_control"},
                                    kBlockPath);
        return true;
      });
  flush();
  if (!any) add("user", "");
}

void TurnReader::assistant(Fields& message) {
  openai::AssistantTurn turn;
  read_blocks(
      message, "content", out_.unread_keys, [&](std::string_view piece) { turn.text.add(piece); },
      [&](const std::string& type, Fields& block) {
        if (type == "thinking") {
          const auto thought = block.string("thinking");
          if (!thought) block.missing("thinking");
          turn.thoughts.add(thought.value_or(""));
          out_.unread_keys.add_others(
              block.all(), {"type", "thinking", "signature", "cache_control"}, kBlockPath);
        } else if (type == "tool_use") {
          const json::object* input = block.object("input");
          for (const char* key : {"id", "name"})
            if (block.string(key).value_or("").empty()) block.missing(key);
          turn.add_call(block.string("id").value_or(""), block.string("name").value_or(""),
                        input != nullptr ? *input : json::object());
          out_.unread_keys.add_others(block.all(), {"type", "id", "name", "input", "cache_control"},
                                      kBlockPath);
        } else {
          return false;
        }
        return true;
      });
  out_.messages.push_back(turn.take());
}

void TurnReader::messages() {
  const json::array* list = fields_.array("messages", std::numeric_limits<int64_t>::max());
  if (list == nullptr) {
    if (!fields_.has("messages")) fields_.missing("messages");
    return;
  }
  if (list->empty()) return fields_.empty_list("messages");
  for (size_t i = 0; i < list->size() && fields_.ok(); ++i) {
    if (!(*list)[i].is_object()) return fields_.mistyped("messages", "must be a list of objects");
    Fields message((*list)[i].get_object(), "messages[" + std::to_string(i) + "].");
    const std::string role = message.string("role").value_or("");
    if (role == "user") {
      user(message);
    } else if (role == "assistant") {
      assistant(message);
    } else if (role == "system") {
      add("system", text_of(message, "content", out_.unread_keys));
    } else {
      message.fail("role", "must be \"user\", \"assistant\" or \"system\"");
    }
    if (!message.ok()) return fields_.fail(message.error());
    out_.unread_keys.add_others(message.all(), {"role", "content"}, "messages[].");
  }
}

// An answer that the client has begun is gone on with.
bool begins_the_answer(const json::array& messages) {
  const json::object& last = messages.back().get_object();
  return as_view(last.at("role").get_string()) == "assistant" &&
         !last.at("content").get_string().empty() && !last.contains("tool_calls");
}

}  // namespace

void parse_turns(Fields& fields, const openai::ParseContext& context, openai::ChatRequest& out) {
  TurnReader reader(fields, out.chat);
  out.left_out_billing_header = reader.system(context.keep_billing_header);
  reader.messages();
  if (!fields.ok()) return;
  out.chat.continue_final_message = begins_the_answer(out.chat.messages);
  out.chat.add_generation_prompt = !out.chat.continue_final_message;
}

}  // namespace quire::server::anthropic
