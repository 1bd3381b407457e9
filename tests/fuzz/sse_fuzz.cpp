// What `quire bench serve` and `quire replay` read of a server, which may say anything: the
// payloads are those of the whole text however it is cut, and each becomes a chunk that says no
// more than it.

#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "bench/serve/stream.h"
#include "choices.h"

namespace {

using quire::bench::parse_chunk;
using quire::bench::SseReader;
using quire::bench::StreamChunk;
using quire::bench::StreamedAnswer;

using Payloads = std::vector<std::string>;

// Line by line, with the whole text at hand.
Payloads expected(std::string_view text) {
  Payloads out;
  for (size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
    std::string line(text.substr(0, end));
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.rfind("data:", 0) != 0) continue;
    out.push_back(line.substr(line.rfind("data: ", 0) == 0 ? 6 : 5));
  }
  return out;
}

// In pieces of `sizes` bytes, over and over.
Payloads read(std::string_view text, const std::vector<size_t>& sizes) {
  Payloads out;
  SseReader reader([&](std::string_view payload) { out.emplace_back(payload); });
  for (size_t at = 0, i = 0; at < text.size(); ++i) {
    const std::string_view piece = text.substr(at, sizes[i % sizes.size()]);
    reader.feed(piece);
    at += piece.size();
  }
  return out;
}

// Escapes only shrink, and a call's name stands between a line end and a blank.
void check_size(const StreamedAnswer& answer, size_t bytes) {
  for (const std::string* text :
       {&answer.content, &answer.reasoning, &answer.calls, &answer.finish})
    QUIRE_CHECK(text->size() <= bytes) << text->size() << " of " << bytes;
}

void check_chunks(const Payloads& payloads) {
  StreamedAnswer all;
  for (const std::string& payload : payloads) {
    const StreamChunk chunk = parse_chunk(payload, !all.has_text());
    QUIRE_CHECK(chunk.is_done == (payload == "[DONE]"));
    QUIRE_CHECK(!chunk.answer.has_text() || chunk.is_token) << payload;
    QUIRE_CHECK(parse_chunk(payload, !all.has_text()).answer == chunk.answer);
    check_size(chunk.answer, payload.size());
    all.append(chunk.answer);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quire::fuzz::Choices choices(data, size);
  std::vector<size_t> sizes(choices.in_range<size_t>(1, 4));
  for (size_t& piece : sizes) piece = choices.in_range<size_t>(1, 40);
  const std::string text = choices.rest();

  const Payloads payloads = expected(text);
  QUIRE_CHECK(read(text, {text.size() + 1}) == payloads);
  QUIRE_CHECK(read(text, {1}) == payloads);
  QUIRE_CHECK(read(text, sizes) == payloads);
  check_chunks(payloads);
  return 0;
}
