// Boost.JSON's implementation header must come before its users.
#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <cstring>
#include <tuple>

#include "formats/safetensors.h"
#include "formats/safetensors_handler.h"

namespace quire::formats {
namespace {

using Error = Err<std::string>;

std::string about(const SafetensorsEntry& entry) {
  return "tensor " + quote_name(entry.name) + ": ";
}

uint64_t read_u64_le(std::string_view bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// The JSON text between the length and the data.
Result<std::string_view, std::string> header_text(std::string_view prefix, uint64_t file_size) {
  if (prefix.size() < 8 || file_size < 8) return Error{"the file is shorter than 8 bytes"};
  const uint64_t size = read_u64_le(prefix);
  if (size > kMaxSafetensorsHeader) {
    return Error{"the header length " + std::to_string(size) + " is over the limit of " +
                 std::to_string(kMaxSafetensorsHeader) + " bytes"};
  }
  if (size > file_size - 8 || size > prefix.size() - 8) {
    return Error{"the header of " + std::to_string(size) + " bytes ends behind the file of " +
                 std::to_string(file_size) + " bytes"};
  }
  const std::string_view text = prefix.substr(8, size);
  if (text.empty() || text[0] != '{') return Error{"the header does not start with '{'"};
  return text;
}

// Bytes that the shape and dtype need. Zero dims are left out of the checked product: a strange
// shape must not overflow later, in code that multiplies the dims in another order.
Result<uint64_t, std::string> needed_bytes(const SafetensorsEntry& entry) {
  int64_t bits = dtype_bits(entry.dtype);
  bool empty = false;
  for (int64_t dim : entry.shape) {
    empty = empty || dim == 0;
    if (dim != 0 && __builtin_mul_overflow(bits, dim, &bits)) {
      return Error{about(entry) + "the product of its shape overflows"};
    }
  }
  if (empty) return uint64_t{0};
  if (bits % 8 != 0) return Error{about(entry) + "its elements do not fill whole bytes"};
  return static_cast<uint64_t>(bits) / 8;
}

Result<void, std::string> check_entry(const SafetensorsEntry& entry, uint64_t data_size) {
  if (entry.begin > entry.end) return Error{about(entry) + "data_offsets end before they begin"};
  if (entry.end > data_size) {
    return Error{about(entry) + "its data ends at byte " + std::to_string(entry.end) +
                 " but the file has only " + std::to_string(data_size) + " bytes of data"};
  }
  const auto needed = needed_bytes(entry);
  if (!needed) return Error{needed.error()};
  if (*needed != entry.end - entry.begin) {
    return Error{about(entry) + "shape and dtype need " + std::to_string(*needed) +
                 " bytes but data_offsets give " + std::to_string(entry.end - entry.begin)};
  }
  return {};
}

// The sorted entries must follow each other from 0 to data_size.
Result<void, std::string> check_tiling(const std::vector<SafetensorsEntry>& entries,
                                       uint64_t data_size) {
  uint64_t expected = 0;
  const SafetensorsEntry* previous = nullptr;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin < expected) {
      return Error{about(entry) + "its data overlaps that of tensor " + quote_name(previous->name)};
    }
    if (entry.begin > expected) {
      return Error{about(entry) + "its data begins at byte " + std::to_string(entry.begin) +
                   ", behind a hole from byte " + std::to_string(expected)};
    }
    expected = entry.end;
    previous = &entry;
  }
  if (expected == data_size) return {};
  return Error{std::to_string(data_size - expected) +
               " bytes at the end of the file belong to no " + "tensor" +
               (previous ? " (the last one is " + quote_name(previous->name) + ")" : "")};
}

Result<SafetensorsHeader, std::string> parse_text(std::string_view text) {
  json::parse_options options;
  options.max_depth = 4;  // one more than a header needs: there the handler names the tensor
  json::basic_parser<SafetensorsHandler> parser(options);
  json::error_code error;
  const size_t consumed = parser.write_some(false, text.data(), text.size(), error);
  if (!parser.handler().problem.empty()) return Err{parser.handler().problem};
  if (!error && consumed < text.size()) error = json::error::extra_data;
  if (error) {
    return Error{"the header is not valid JSON (byte " + std::to_string(consumed) +
                 " of it): " + error.message()};
  }
  return std::move(parser.handler().header);
}

}  // namespace

Result<SafetensorsHeader, std::string> parse_safetensors_header(std::string_view file_prefix,
                                                                uint64_t file_size) {
  const auto text = header_text(file_prefix, file_size);
  if (!text) return Err{text.error()};
  auto header = parse_text(*text);
  if (!header) return header;
  header->data_begin = 8 + text->size();
  const uint64_t data_size = file_size - header->data_begin;
  for (const SafetensorsEntry& entry : header->entries) {
    if (auto ok = check_entry(entry, data_size); !ok) return Err{ok.error()};
  }
  // Empty tensors share the offset of their neighbour: ordered by (begin, end) they come first.
  std::sort(header->entries.begin(), header->entries.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  if (auto ok = check_tiling(header->entries, data_size); !ok) return Err{ok.error()};
  return header;
}

}  // namespace quire::formats
