// Any text in any dialect: the result is the same in one piece and in many, calls are whole JSON
// unless the text was cut, and an answer that is not empty leaves something.

#include <string>
#include <vector>

#include "base/check.h"
#include "choices.h"
#include "dialects/dialect.h"
#include "dialects/output_parser.h"

namespace {

using namespace quire::dialects;

const ToolSet& offered() {
  static const ToolSet tools = *ToolSet::parse(*quire::parse_json(
      R"([{"name": "f", "parameters": {"properties": {"s": {"type": "string"}, "n": {"type": "integer"},
          "u": {"type": ["string", "null", "object"]}}}}, {"name": "g"}])"));
  return tools;
}

struct Result {
  ParsedOutput output;
  bool complete = false;
};

// In pieces of `sizes` bytes, over and over; none: in one.
Result parse(const OutputParser::Options& options, std::string_view text, bool cut,
             const std::vector<size_t>& sizes) {
  OutputParser parser(options, offered());
  Result result;
  for (size_t at = 0, i = 0; at < text.size(); ++i) {
    const size_t size = sizes.empty() ? text.size() : sizes[i % sizes.size()];
    Events events;
    parser.push(text.substr(at, size), events);
    result.output.add(events);
    at += std::min(size, text.size() - at);
  }
  Events events;
  parser.finish(cut, events);
  result.output.add(events);
  result.complete = parser.complete();
  return result;
}

void check_same(const Result& a, const Result& b) {
  QUIRE_CHECK(a.output.content == b.output.content) << a.output.content << "|" << b.output.content;
  QUIRE_CHECK(a.output.reasoning == b.output.reasoning);
  QUIRE_CHECK(a.complete == b.complete);
  QUIRE_CHECK(a.output.calls.size() == b.output.calls.size());
  for (size_t i = 0; i < a.output.calls.size(); ++i) {
    QUIRE_CHECK(a.output.calls[i].name == b.output.calls[i].name);
    QUIRE_CHECK(a.output.calls[i].arguments == b.output.calls[i].arguments);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quire::fuzz::Choices choices(data, size);
  const auto& all = all_dialects();
  const Dialect* dialect = all[choices.in_range<size_t>(0, all.size() - 1)];
  const OutputParser::Options options{dialect, dialect, choices.flip()};
  const bool cut = choices.flip();
  std::vector<size_t> sizes(choices.in_range<size_t>(1, 4));
  for (size_t& piece : sizes) piece = choices.in_range<size_t>(1, 9);
  const std::string text = choices.rest();

  const Result whole = parse(options, text, cut, {});
  check_same(whole, parse(options, text, cut, sizes));
  check_same(whole, parse(options, text, cut, {1}));
  for (const auto& call : whole.output.calls) {
    QUIRE_CHECK(offered().offers(call.name)) << call.name;
    QUIRE_CHECK(call.complete || cut) << call.arguments;
    // JSON that parse_json refuses for its depth or its numbers is JSON all the same.
    QUIRE_CHECK(!call.complete || call.arguments.starts_with('{')) << call.arguments;
  }
  return 0;
}
