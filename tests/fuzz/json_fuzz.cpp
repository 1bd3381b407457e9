// Long JSON documents are parsed in pieces: wherever a piece ends, the value is that of the same
// document in one piece.

#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "choices.h"

namespace {

constexpr size_t kPiece = 64u << 10;  // no document of this size or less is cut

// What it stands for, or nothing if it is no JSON.
std::string written_anew(const std::string& document) {
  const auto value = quire::parse_json(document);
  return value ? quire::dump_json(*value) : std::string();
}

// A number of more than a thousand characters may be read in two parts, and rounded otherwise.
bool has_long_number(std::string_view document) {
  size_t run = 0;
  for (const char c : document) {
    run = std::string_view("0123456789+-.eE").find(c) != std::string_view::npos ? run + 1 : 0;
    if (run > 1000) return true;
  }
  return false;
}

// The first piece ends behind `split` bytes of the document.
void check_document(const std::string& document, size_t split) {
  const std::string cut = std::string(kPiece - split, ' ') + document;
  QUIRE_CHECK(written_anew(cut) == written_anew(document)) << "cut behind byte " << split;
}

// The same inside a string, of which more follows than the parser collects in one go.
void check_string(std::string_view inside, size_t split) {
  const std::string rest = std::string(inside) + std::string(5000, 'y') + "\"]";
  const size_t before = kPiece - 2 - split;
  const std::string whole = written_anew("[\"" + rest);
  std::string cut = written_anew("[\"" + std::string(before, 'x') + rest);
  if (cut.size() > before) cut.erase(2, before);
  QUIRE_CHECK(cut == whole) << "cut behind byte " << split;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  quire::fuzz::Choices choices(bytes, size);
  const size_t where = choices.any<uint16_t>();
  const std::string document = choices.rest();
  const size_t split = where % (document.size() + 1);
  if (!has_long_number(document)) check_document(document, split);
  check_string(document, split);
  return 0;
}
