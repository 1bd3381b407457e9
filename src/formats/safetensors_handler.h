#pragma once
#include <set>
#include <string>
#include <string_view>

#include "base/json.h"
#include "formats/safetensors.h"

namespace quire::formats {

// Receives the events of Boost.JSON's basic_parser and builds the entries of a safetensors header.
// A document tree would not do: it keeps the last of duplicate keys without a word. Each state says
// which event may come next; every other event ends the parse with `problem`.
class SafetensorsHandler {
 public:
  static constexpr size_t max_array_size = -1;
  static constexpr size_t max_object_size = -1;
  static constexpr size_t max_string_size = -1;
  static constexpr size_t max_key_size = -1;

  SafetensorsHeader header;
  std::string problem;  // why the handler stopped the parse; empty if it did not

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code& ec);
  bool on_object_end(size_t, json::error_code& ec);
  bool on_array_begin(json::error_code& ec);
  bool on_array_end(size_t, json::error_code& ec);
  bool on_key_part(json::string_view s, size_t, json::error_code&) { return append(s); }
  bool on_key(json::string_view s, size_t, json::error_code& ec);
  bool on_string_part(json::string_view s, size_t, json::error_code&) { return append(s); }
  bool on_string(json::string_view s, size_t, json::error_code& ec);
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(int64_t i, json::string_view, json::error_code& ec);
  bool on_uint64(uint64_t u, json::string_view, json::error_code& ec);
  bool on_double(double, json::string_view, json::error_code& ec) { return unexpected(ec); }
  bool on_bool(bool, json::error_code& ec) { return unexpected(ec); }
  bool on_null(json::error_code& ec) { return unexpected(ec); }
  bool on_comment_part(json::string_view, json::error_code& ec) { return unexpected(ec); }
  bool on_comment(json::string_view, json::error_code& ec) { return unexpected(ec); }

 private:
  enum class State {
    kDocument,
    kTopKey,
    kTensorObject,
    kTensorKey,
    kDtype,
    kShapeArray,
    kShapeItem,
    kOffsetsArray,
    kOffsetItem,
    kMetadataObject,
    kMetadataKey,
    kMetadataValue,
    kDone,
  };
  enum Field : unsigned { kHasDtype = 1, kHasShape = 2, kHasOffsets = 4, kHasAll = 7 };

  bool append(json::string_view s);
  bool fail(json::error_code& ec, std::string why);
  bool unexpected(json::error_code& ec);
  bool top_key(std::string key, json::error_code& ec);
  bool tensor_key(const std::string& key, json::error_code& ec);
  bool go(State next) { return state_ = next, true; }
  // "tensor "x": " or "__metadata__: ", for messages.
  std::string where() const;

  State state_ = State::kDocument;
  std::string text_;                // the string or key in progress
  std::set<std::string> top_keys_;  // ordered: chosen names cannot make it slow, as a hash could
  std::string metadata_key_;
  SafetensorsEntry entry_;
  unsigned fields_ = 0;
  size_t num_offsets_ = 0;
};

}  // namespace quire::formats
