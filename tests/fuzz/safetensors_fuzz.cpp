// Hostile safetensors files. What the parser accepts is checked against a second reading of the
// header as a document tree; what it refuses must only not crash.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "formats/safetensors.h"

namespace quire::formats {
namespace {

json::object read_tree(std::string_view text) {
  auto tree = parse_json(text);
  return tree && tree->is_object() ? tree->get_object() : json::object();
}

// A tree keeps one of two equal keys, so equal counts mean that the header has no duplicates.
void check_accepted(const SafetensorsHeader& header, const json::object& tree, uint64_t file_size) {
  const size_t metadata = tree.contains("__metadata__") ? 1 : 0;
  QUIRE_CHECK(tree.size() == header.entries.size() + metadata);
  if (metadata) {
    QUIRE_CHECK(tree.at("__metadata__").get_object().size() == header.metadata.size());
  }
  uint64_t at = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    QUIRE_CHECK(entry.begin == at && entry.end >= entry.begin) << entry.name;
    at = entry.end;
    unsigned __int128 bits = static_cast<unsigned>(dtype_bits(entry.dtype));
    for (int64_t dim : entry.shape) bits *= static_cast<uint64_t>(dim);
    QUIRE_CHECK(bits == static_cast<unsigned __int128>(entry.end - entry.begin) * 8) << entry.name;
    const json::object& other = tree.at(entry.name).get_object();
    QUIRE_CHECK(other.size() == 3) << entry.name;
    QUIRE_CHECK(other.at("dtype").get_string() == dtype_name(entry.dtype)) << entry.name;
    QUIRE_CHECK(other.at("shape").get_array().size() == entry.shape.size()) << entry.name;
    QUIRE_CHECK(other.at("data_offsets").at(0).to_number<uint64_t>() == entry.begin);
    QUIRE_CHECK(other.at("data_offsets").at(1).to_number<uint64_t>() == entry.end);
  }
  QUIRE_CHECK(header.data_begin <= file_size && at == file_size - header.data_begin);
}

void try_file(std::string_view prefix, uint64_t file_size) {
  const auto header = parse_safetensors_header(prefix, file_size);
  if (!header) {
    QUIRE_CHECK(!header.error().empty());
    return;
  }
  check_accepted(*header, read_tree(prefix.substr(8, header->data_begin - 8)), file_size);
  QUIRE_CHECK(!parse_safetensors_header(prefix, file_size - 1)) << "a truncated file is accepted";
  QUIRE_CHECK(!parse_safetensors_header(prefix, file_size + 1)) << "a tail is accepted";
}

// Bytes of data that the tensors of this header reach, so that a fuzzer that changes only the text
// still gets past the comparison with the length of the file.
uint64_t claimed_data_size(const json::object& tree) {
  uint64_t size = 0;
  for (const auto& entry : tree) {
    const json::object* tensor = entry.value().if_object();
    const json::value* offsets = tensor ? tensor->if_contains("data_offsets") : nullptr;
    const json::array* array = offsets ? offsets->if_array() : nullptr;
    if (!array) continue;
    for (const json::value& offset : *array)
      if (offset.is_int64() && offset.get_int64() > 0)
        size = std::max(size, static_cast<uint64_t>(offset.get_int64()));
  }
  return size;
}

// The input as the text of a header whose length and file are right.
void try_header_text(std::string_view text) {
  std::string prefix;
  for (int i = 0; i < 8; ++i) prefix += static_cast<char>(uint64_t{text.size()} >> (8 * i));
  prefix += text;
  try_file(prefix, prefix.size() + claimed_data_size(read_tree(text)));
}

}  // namespace
}  // namespace quire::formats

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  quire::formats::try_file(input, input.size());
  quire::formats::try_header_text(input);
  return 0;
}
