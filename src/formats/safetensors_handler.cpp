#include "formats/safetensors_handler.h"

#include <utility>

namespace quire::formats {

bool SafetensorsHandler::append(json::string_view s) {
  text_.append(s.data(), s.size());
  return true;
}

bool SafetensorsHandler::fail(json::error_code& ec, std::string why) {
  problem = where() + std::move(why);
  ec = make_error_code(json::error::exception);  // any code: `problem` is what is reported
  return false;
}

std::string SafetensorsHandler::where() const {
  switch (state_) {
    case State::kDocument:
    case State::kTopKey:
    case State::kDone:
      return "";
    case State::kMetadataObject:
    case State::kMetadataKey:
    case State::kMetadataValue:
      return "__metadata__: ";
    default:
      return "tensor " + quote_name(entry_.name) + ": ";
  }
}

bool SafetensorsHandler::unexpected(json::error_code& ec) {
  switch (state_) {
    case State::kTensorObject:
      return fail(ec, "its entry must be an object");
    case State::kDtype:
      return fail(ec, "dtype must be a string");
    case State::kShapeArray:
    case State::kShapeItem:
      return fail(ec,
                  "shape must be a list of whole numbers in [0, " + std::to_string(kMaxDim) + "]");
    case State::kOffsetsArray:
    case State::kOffsetItem:
      return fail(ec, "data_offsets must be a list of two whole numbers [begin, end]");
    case State::kMetadataObject:
    case State::kMetadataValue:
      return fail(ec, "must be an object of strings");
    default:
      return fail(ec, "the header must be a JSON object");
  }
}

bool SafetensorsHandler::on_object_begin(json::error_code& ec) {
  switch (state_) {
    case State::kDocument:
      return go(State::kTopKey);
    case State::kTensorObject:
      fields_ = 0;
      return go(State::kTensorKey);
    case State::kMetadataObject:
      return go(State::kMetadataKey);
    default:
      return unexpected(ec);
  }
}

bool SafetensorsHandler::on_object_end(size_t, json::error_code& ec) {
  if (state_ == State::kTopKey) return go(State::kDone);
  if (state_ == State::kTensorKey) {
    if (fields_ != kHasAll) return fail(ec, "its entry needs dtype, shape and data_offsets");
    header.entries.push_back(std::move(entry_));
    entry_ = {};
  }
  return go(State::kTopKey);
}

bool SafetensorsHandler::on_array_begin(json::error_code& ec) {
  if (state_ == State::kShapeArray) return go(State::kShapeItem);
  if (state_ != State::kOffsetsArray) return unexpected(ec);
  num_offsets_ = 0;
  return go(State::kOffsetItem);
}

bool SafetensorsHandler::on_array_end(size_t, json::error_code& ec) {
  if (state_ == State::kOffsetItem && num_offsets_ != 2) return unexpected(ec);
  return go(State::kTensorKey);
}

bool SafetensorsHandler::on_key(json::string_view s, size_t, json::error_code& ec) {
  append(s);
  std::string key = std::exchange(text_, {});
  if (state_ == State::kTopKey) return top_key(std::move(key), ec);
  if (state_ == State::kTensorKey) return tensor_key(key, ec);
  if (header.metadata.count(key) != 0) return fail(ec, "key " + quote_name(key) + " appears twice");
  metadata_key_ = std::move(key);
  return go(State::kMetadataValue);
}

bool SafetensorsHandler::top_key(std::string key, json::error_code& ec) {
  if (!top_keys_.insert(key).second) {
    return fail(ec, "tensor " + quote_name(key) + " appears twice in the header");
  }
  if (key == "__metadata__") return go(State::kMetadataObject);
  entry_.name = std::move(key);
  return go(State::kTensorObject);
}

bool SafetensorsHandler::tensor_key(const std::string& key, json::error_code& ec) {
  const auto [field, next] = key == "dtype"          ? std::pair(kHasDtype, State::kDtype)
                             : key == "shape"        ? std::pair(kHasShape, State::kShapeArray)
                             : key == "data_offsets" ? std::pair(kHasOffsets, State::kOffsetsArray)
                                                     : std::pair(kHasAll, State::kDone);
  if (next == State::kDone) return fail(ec, "unknown key " + quote_name(key) + " in its entry");
  if ((fields_ & field) != 0)
    return fail(ec, "key " + quote_name(key) + " appears twice in its entry");
  fields_ |= field;
  return go(next);
}

bool SafetensorsHandler::on_string(json::string_view s, size_t, json::error_code& ec) {
  append(s);
  std::string text = std::exchange(text_, {});
  if (state_ == State::kMetadataValue) {
    header.metadata.emplace(std::move(metadata_key_), std::move(text));
    return go(State::kMetadataKey);
  }
  if (state_ != State::kDtype) return unexpected(ec);
  const std::optional<DType> dtype = dtype_from_name(text);
  if (!dtype) return fail(ec, "unknown dtype " + quote_name(text));
  entry_.dtype = *dtype;
  return go(State::kTensorKey);
}

bool SafetensorsHandler::on_int64(int64_t i, json::string_view s, json::error_code& ec) {
  if (i < 0) return unexpected(ec);
  return on_uint64(static_cast<uint64_t>(i), s, ec);
}

bool SafetensorsHandler::on_uint64(uint64_t u, json::string_view, json::error_code& ec) {
  if (state_ == State::kShapeItem) {
    if (u > static_cast<uint64_t>(kMaxDim)) return unexpected(ec);
    if (entry_.shape.size() == kMaxDims) {
      return fail(ec, "more than " + std::to_string(kMaxDims) + " dimensions");
    }
    entry_.shape.push_back(static_cast<int64_t>(u));
    return true;
  }
  if (state_ != State::kOffsetItem || num_offsets_ == 2) return unexpected(ec);
  (num_offsets_++ == 0 ? entry_.begin : entry_.end) = u;
  return true;
}

}  // namespace quire::formats
