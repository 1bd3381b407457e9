// What clients send as `instructions` and `input` becomes the messages of a chat.
#include "base/printable.h"
#include "server/openai/turn.h"
#include "server/responses/parse.h"

namespace quire::server::responses {
namespace {

using openai::as_view;
using openai::Fields;

constexpr size_t kMaxNameBytes = 40;  // of a client's own, in an error

// Hands on what is at `key`: a text, or a list of parts that are texts. Keys of parts that nobody
// reads are added to `unread`.
void read_texts(Fields& owner, std::string_view key, openai::JoinedText& out,
                openai::UnknownFields& unread) {
  const json::value* content = owner.find(key);
  if (content == nullptr) return owner.missing(key);
  if (content->is_string()) return out.add(as_view(content->get_string()));
  if (!content->is_array()) return owner.mistyped(key, "must be a string or a list of parts");
  const json::array& list = content->get_array();
  for (size_t i = 0; i < list.size() && owner.ok(); ++i) {
    const std::string path = owner.name(key) + "[" + std::to_string(i) + "]";
    if (!list[i].is_object())
      return owner.fail(
          ApiError{400, "`" + path + "` must be an object", path, openai::kInvalidType});
    Fields part(list[i].get_object(), path + ".");
    const std::string type = part.string("type").value_or("");
    const bool is_text = type == "input_text" || type == "output_text" || type == "text" ||
                         type == "reasoning_text" || type == "summary_text";
    const char* text_key = type == "refusal" ? "refusal" : "text";
    if (!is_text && type != "refusal") {
      part.fail("type", "\"" + printable(type, kMaxNameBytes) +
                            "\" is not supported: this model reads text only");
    } else if (const auto text = part.string(text_key)) {
      out.add(*text);
    } else {
      part.missing(text_key);
    }
    if (!part.ok()) return owner.fail(part.error());
    unread.add_others(part.all(), {"type", text_key}, "input[]." + std::string(key) + "[].");
  }
}

std::string text_of(Fields& owner, std::string_view key, openai::UnknownFields& unread) {
  openai::JoinedText text;
  read_texts(owner, key, text, unread);
  return text.take();
}

// Whatever a model has said in one turn (reasoning, texts, calls) is one message of a chat.
class ItemReader {
 public:
  ItemReader(const openai::ParseContext& context, openai::ChatInput& out)
      : context_(context), out_(out) {}

  void item(Fields& item);
  void end_turn() {
    if (turn_.any()) out_.messages.push_back(turn_.take());
  }

 private:
  void message(Fields& item);
  void reasoning(Fields& item);
  void call(Fields& item, const char* arguments);
  void result(Fields& item);

  const openai::ParseContext& context_;
  openai::ChatInput& out_;
  openai::AssistantTurn turn_;
};

// System texts that follow one another are one: of several, many templates show the first alone.
void ItemReader::message(Fields& item) {
  const std::string role = item.string("role").value_or("");
  if (role == "assistant") return read_texts(item, "content", turn_.text, out_.unread_keys);
  end_turn();
  const std::string text = text_of(item, "content", out_.unread_keys);
  if (role == "user") {
    openai::add_message(out_.messages, role, text);
  } else if (role == "system" || role == "developer") {
    openai::join_message(out_.messages, "system", text);
  } else {
    item.fail("role", "must be \"user\", \"assistant\", \"system\" or \"developer\"");
  }
}

// Clients send back the text, or what stands for it, or a summary.
void ItemReader::reasoning(Fields& item) {
  std::string text = item.has("content") ? text_of(item, "content", out_.unread_keys) : "";
  const std::string sealed = item.string("encrypted_content").value_or("");
  if (text.empty() && sealed.starts_with(kSeal)) text = sealed.substr(kSeal.size());
  if (text.empty() && item.has("summary")) text = text_of(item, "summary", out_.unread_keys);
  if (!text.empty()) return turn_.thoughts.add(text);
  if (!sealed.empty() && !sealed.starts_with(kSeal))
    item.fail("encrypted_content", "is another server's, which cannot be read here",
              "unsupported_value");
}

void ItemReader::call(Fields& item, const char* arguments) {
  for (const char* key : {"call_id", "name"})
    if (item.string(key).value_or("").empty()) item.missing(key);
  const auto text = item.string(arguments);
  if (!text) item.missing(arguments);
  if (!item.ok()) return;
  json::value value(*text);
  if (arguments == std::string_view("arguments")) {
    unpack_arguments(item, value, context_, out_);
  } else {
    value = json::object{{arguments, std::move(value)}};
  }
  turn_.add_call(
      item.string("call_id").value_or(""),
      placed_name(item.string("namespace").value_or(""), item.string("name").value_or("")),
      std::move(value));
}

void ItemReader::result(Fields& item) {
  end_turn();
  const auto id = item.string("call_id");
  if (!id) item.missing("call_id");
  openai::add_result(out_.messages, id.value_or(""), text_of(item, "output", out_.unread_keys));
}

void ItemReader::item(Fields& item) {
  const std::string type = item.string("type").value_or("message");
  const auto note_others = [&](std::initializer_list<std::string_view> read) {
    out_.unread_keys.add_others(item.all(), read, "input[].");
  };
  if (type == "message") {
    message(item);
    note_others({"type", "id", "status", "role", "content"});
  } else if (type == "reasoning") {
    reasoning(item);
    note_others({"type", "id", "status", "content", "summary", "encrypted_content"});
  } else if (type == "function_call") {
    call(item, "arguments");
    note_others({"type", "id", "status", "call_id", "name", "namespace", "arguments"});
  } else if (type == "custom_tool_call") {
    call(item, "input");
    note_others({"type", "id", "status", "call_id", "name", "namespace", "input"});
  } else if (type == "function_call_output" || type == "custom_tool_call_output") {
    result(item);
    note_others({"type", "id", "status", "call_id", "output"});
  } else if (type == "item_reference") {
    item.fail("type", "\"item_reference\" is not supported: nothing is stored here; send the item",
              "unsupported_value");
  } else {
    item.fail("type", "\"" + printable(type, kMaxNameBytes) + "\" is not supported",
              "unsupported_value");
  }
}

}  // namespace

void parse_input(Fields& fields, const openai::ParseContext& context, openai::ChatInput& out) {
  if (const auto instructions = fields.string("instructions");
      instructions && !instructions->empty())
    openai::add_message(out.messages, "system", *instructions);
  const json::value* input = fields.find("input");
  if (input == nullptr) return fields.missing("input");
  if (input->is_string())
    return openai::add_message(out.messages, "user", as_view(input->get_string()));
  if (!input->is_array()) return fields.mistyped("input", "must be a string or a list of items");
  const json::array& list = input->get_array();
  if (list.empty()) return fields.empty_list("input");
  ItemReader reader(context, out);
  for (size_t i = 0; i < list.size() && fields.ok(); ++i) {
    if (!list[i].is_object()) return fields.mistyped("input", "must be a list of objects");
    Fields item(list[i].get_object(), "input[" + std::to_string(i) + "].");
    reader.item(item);
    if (!item.ok()) fields.fail(item.error());
  }
  reader.end_turn();
  if (out.messages.empty()) fields.fail("input", "has no messages");
}

}  // namespace quire::server::responses
