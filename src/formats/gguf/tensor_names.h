#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace quire::formats {

// "blk.3.attn_q.weight" in parts; "blk.3.ssm_a" has no ending.
struct GgufBlockName {
  std::string_view layer, part, ending = {};
};
// Views the name. Nothing if it is not of a layer.
std::optional<GgufBlockName> gguf_block_name(std::string_view name);

// What tensors of GGUF files are called in checkpoints of Hugging Face, and the other way round.
class GgufTensorNames {
 public:
  // With the names that most architectures share.
  GgufTensorNames();

  // A part of a name, between "blk.N." and ".weight", in Hugging Face's words; with an ending other
  // than ".weight" and ".bias" the part and the ending.
  void rename(const std::string& gguf, std::string hugging_face) {
    parts_[gguf] = {.name = std::move(hugging_face)};
  }
  // The same where Hugging Face's name has no ".weight" or ".bias".
  void rename_whole(const std::string& gguf, std::string hugging_face) {
    parts_[gguf] = {.name = std::move(hugging_face), .is_whole = true};
  }
  bool has_part(const std::string& gguf) const { return parts_.contains(gguf); }

  // Nothing if it is not known.
  std::optional<std::string> hugging_face(std::string_view gguf) const;
  std::optional<std::string> gguf(std::string_view hugging_face) const;

 private:
  struct Part {
    std::string name;
    bool is_whole = false;
    bool is_shared = false;  // by most architectures; what an architecture renames counts first
  };
  static std::optional<std::string> ending_of(const Part& part, std::string_view hugging_face);
  std::map<std::string, Part, std::less<>> parts_;
};

}  // namespace quire::formats
