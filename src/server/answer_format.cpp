#include "server/answer_format.h"

#include "base/json.h"

namespace quire::server {

std::string json_or_null(std::string_view text) {
  if (text.empty()) return "null";
  std::string out;
  append_json_string(out, text);
  return out;
}

bool AnswerBody::next(std::string& out) {
  constexpr size_t kPieceBytes = 64u << 10;
  const size_t enough = out.size() + kPieceBytes;
  while (!steps_.empty() && out.size() < enough) {
    steps_.front()(out, list_);
    steps_.pop_front();
  }
  return !steps_.empty();
}

}  // namespace quire::server
