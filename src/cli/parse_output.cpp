#include <cstdio>
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "base/json.h"
#include "cli/commands.h"
#include "dialects/dialect.h"
#include "dialects/output_parser.h"
#include "formats/data_file.h"

namespace quire::cli {
namespace {

constexpr size_t kMaxToolsBytes = size_t{32} << 20;

struct ParseFlags {
  std::string dialect, tools, start, finish = "stop";
  size_t chunk = 0;  // bytes; 0: all at once
  bool list = false;
};

dialects::ToolSet read_tools(const std::string& path) {
  if (path.empty()) return {};
  auto parsed = parse_json(formats::read_text_file(path, kMaxToolsBytes));
  if (!parsed) throw LoadError("--tools " + path + ": " + parsed.error());
  const json::value* tools = &*parsed;
  if (const json::object* request = tools->if_object())
    if (const json::value* inner = request->if_contains("tools")) tools = inner;
  auto set = dialects::ToolSet::parse(*tools);
  if (!set) throw LoadError("--tools " + path + ": " + set.error());
  return std::move(*set);
}

dialects::ParsedOutput parse(const ParseFlags& flags, std::string_view text, bool& complete) {
  const dialects::Dialect* dialect = dialects::find_dialect(flags.dialect);
  if (dialect == nullptr)
    throw LoadError("there is no dialect \"" + flags.dialect +
                    "\"; `quire parse-output --list` names them");
  const dialects::ToolSet tools = read_tools(flags.tools);
  dialects::OutputParser parser({dialect, dialect, flags.start == "reasoning"}, tools);
  const size_t chunk = flags.chunk == 0 ? text.size() : flags.chunk;
  dialects::ParsedOutput output;
  for (size_t at = 0; at < text.size(); at += chunk) {
    dialects::Events events;
    parser.push(text.substr(at, chunk), events);
    output.add(events);
  }
  dialects::Events events;
  parser.finish(flags.finish == "length", events);
  output.add(events);
  complete = parser.complete();
  return output;
}

void append_text(std::string& out, std::string_view text) {
  if (text.empty()) {
    out += "null";
  } else {
    append_json_string(out, text);
  }
}

std::string to_json(const dialects::ParsedOutput& output, bool complete) {
  std::string out = "{\"content\": ";
  append_text(out, output.content);
  out += ", \"reasoning\": ";
  append_text(out, output.reasoning);
  out += ", \"tool_calls\": [";
  for (size_t i = 0; i < output.calls.size(); ++i) {
    out += i == 0 ? "{\"name\": " : ", {\"name\": ";
    append_json_string(out, output.calls[i].name);
    out += ", \"arguments\": ";
    append_json_string(out, output.calls[i].arguments);
    out += '}';
  }
  out += "], \"complete\": ";
  out += complete ? "true}" : "false}";
  return out;
}

int parse_output(const ParseFlags& flags) {
  if (flags.list) {
    for (const dialects::Dialect* dialect : dialects::all_dialects())
      std::printf("%s\n", std::string(dialect->name).c_str());
    return 0;
  }
  if (flags.dialect.empty())
    throw LoadError("parse-output needs a dialect; `quire parse-output --list` names them");
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  bool complete = false;
  const dialects::ParsedOutput output = parse(flags, text, complete);
  std::printf("%s\n", to_json(output, complete).c_str());
  return 0;
}

}  // namespace

void add_parse_output(CLI::App& app, int& status) {
  auto flags = std::make_shared<ParseFlags>();
  CLI::App* command = app.add_subcommand(
      "parse-output",
      "Read a model's raw text on standard input and print its content, reasoning and tool calls");
  command->add_option("dialect", flags->dialect, "How the model writes calls; see --list")
      ->type_name("DIALECT");
  command
      ->add_option("--tools", flags->tools,
                   "JSON file with the tools offered: OpenAI's list. Without it a call may name "
                   "any tool, and values without syntax of their own are strings")
      ->type_name("FILE");
  command
      ->add_option("--start", flags->start,
                   "What the text begins in: `reasoning` where the prompt has opened the block")
      ->check(CLI::IsMember({"reasoning", "content"}));
  command
      ->add_option("--finish", flags->finish,
                   "Why the text ended: the model's stop, or the `length` it may have")
      ->check(CLI::IsMember({"stop", "length"}))
      ->capture_default_str();
  command
      ->add_option("--chunk", flags->chunk,
                   "Feed this many bytes at a time; 0: all at once. The result is the same")
      ->capture_default_str();
  command->add_flag("--list", flags->list, "Print the dialects' names");
  command->callback([flags, &status] { status = parse_output(*flags); });
}

}  // namespace quire::cli
