// What a checkpoint lacks is told from its headers, in the words of loading, and by the name that
// people find in the file: every kind of tensor of every tiny checkpoint goes missing once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/error.h"
#include "base/source_dir.h"
#include "formats/gguf/gguf.h"
#include "formats/test_files.h"
#include "models/model.h"

namespace quire::models {
namespace {

using formats::testing::TempDir;
using ::testing::AnyOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

// A copy of a checkpoint, the first byte of whose tensors' names can be changed: then a tensor is
// missing, and one is left over.
class Copy {
 public:
  explicit Copy(const fs::path& source) {
    for (const auto& entry : fs::directory_iterator(source))
      if (entry.is_regular_file()) {
        const fs::path copy = fs::path(dir_.path()) / entry.path().filename();
        fs::copy_file(entry.path(), copy);
        const std::string extension = copy.extension().string();
        if (extension == ".safetensors" || extension == ".gguf") weights_[copy] = bytes_of(copy);
      }
  }

  std::string path() const {
    const std::string gguf = dir_.path() + "/model.gguf";
    return fs::exists(gguf) ? gguf : dir_.path();
  }

  // The last one of each kind, as "model.layers.#.mlp.up_proj.weight" is one, as the files call it.
  std::vector<std::string> tensors_of_each_kind() const {
    std::map<std::string, std::string> kinds;
    for (const std::string& name : names()) {
      std::string kind = name;
      std::ranges::replace_if(kind, [](unsigned char c) { return std::isdigit(c); }, '#');
      kinds[kind] = name;
    }
    std::vector<std::string> out;
    for (const auto& [kind, name] : kinds) out.push_back(name);
    return out;
  }

  // Calls `use()` while a tensor has another name.
  template <class Use>
  void without(const std::string& name, const Use& use) {
    for (const auto& [file, bytes] : weights_) {
      const size_t at = find(bytes, file.extension() == ".gguf", name);
      if (at == std::string::npos) continue;
      write(file, at, 'X');
      use();
      write(file, at, name[0]);
      return;
    }
    FAIL() << "no tensor " << name;
  }

  std::string error_of_headers() const {
    return error_of([](const auto& checkpoint) { check_tensors(checkpoint); });
  }
  std::string error_of_loading() const {
    return error_of([](const auto& checkpoint) { load_model(ops::make_context(1), checkpoint); });
  }

 private:
  static std::string bytes_of(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  template <class Call>
  std::string error_of(const Call& call) const {
    try {
      call(formats::Checkpoint::open(path()));
    } catch (const LoadError& error) {
      return error.what();
    }
    return "";
  }

  std::vector<std::string> names() const {
    if (path() == dir_.path()) return formats::Checkpoint::open(path()).names();
    std::vector<std::string> out;
    const auto model = formats::GgufModel::open(path());
    for (const auto& tensor : model.tensors()) out.push_back(tensor.name);
    return out;
  }

  // Where a header has the name: behind its length of 8 bytes, or between quotes.
  static size_t find(std::string_view bytes, bool is_gguf, const std::string& name) {
    std::string before = "\"";
    if (is_gguf) {
      before = std::string(8, '\0');
      before[0] = static_cast<char>(name.size());
    }
    const size_t at = bytes.find(before + name + (is_gguf ? "" : "\""));
    return at == std::string::npos ? at : at + before.size();
  }

  static void write(const fs::path& file, size_t at, char byte) {
    std::fstream out(file, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(at)).put(byte);
  }

  TempDir dir_;
  std::map<fs::path, std::string> weights_;  // files with their bytes
};

// The layer and its part: wrappers and quantised values have it under more names than one.
std::string part_of(const std::string& name) {
  const size_t layers = name.find("layers."), last = name.rfind('.');
  const bool has_ending = name.ends_with("weight") || name.ends_with("scales") ||
                          name.ends_with("biases") || name.find("scale") > last;
  const std::string stem = has_ending ? name.substr(0, last) : name;
  if (layers != std::string::npos) return stem.substr(layers);
  return name.starts_with("blk.") ? stem : stem.substr(stem.rfind('.') + 1);
}

// What stands for such a tensor in other checkpoints of the family, and may be missed in its place.
std::string other_way(const std::string& name) {
  static const std::map<std::string, std::string> kOtherWays = {
      {".attn_k_b", ".attn_kv_b"},
      {".attn_qkv", ".ssm_in"},
      {".embed_q", ".kv_b_proj"},
      {".ffn_gate_shexp", ".shared_mlp.input_linear"},
      {".ffn_gate_up_exps", ".ffn_gate_exps"},
      {".nextn.eh_proj", ".nextn.*"},
      {".ssm_a", ".linear_attn.A_log"}};
  for (const auto& [part, other] : kOtherWays)
    if (name.ends_with(part) || name.ends_with(part + ".weight")) return other;
  return part_of(name);
}

// Whether a model without this one is another model, which may be whole.
bool is_optional(const std::string& name) {
  return name == "output.weight" || name.starts_with("rope_f") || name.ends_with("bias") ||
         name.ends_with(".k_scale") || name.ends_with(".v_scale");
}

void expect_all_to_be_missed(bool gguf) {
  int folders = 0;
  for (const auto& folder : fs::directory_iterator(source_dir() + "/tests/parity/models")) {
    if (fs::exists(folder.path() / "model.gguf") != gguf) continue;
    SCOPED_TRACE(folder.path().filename());
    Copy copy(folder.path());
    EXPECT_EQ(copy.error_of_headers(), "");
    EXPECT_EQ(copy.error_of_loading(), "");
    const std::vector<std::string> kinds = copy.tensors_of_each_kind();
    // One of them goes missing while the model is loaded, too.
    const std::string& loaded = kinds[static_cast<size_t>(folders++) % kinds.size()];
    for (const std::string& name : kinds)
      copy.without(name, [&] {
        const std::string error = copy.error_of_headers();
        if (name == loaded) {
          EXPECT_EQ(copy.error_of_loading(), error) << name;
        }
        if (is_optional(name)) return;
        // What nothing needs is left over by its other name.
        EXPECT_THAT(error, AnyOf(HasSubstr(part_of(name)), HasSubstr(other_way(name)),
                                 HasSubstr("not use: X" + name.substr(1))))
            << name;
      });
  }
}

TEST(MissingTensors, OfFoldersAreNamed) { expect_all_to_be_missed(/*gguf=*/false); }
TEST(MissingTensors, OfGgufFilesAreNamed) { expect_all_to_be_missed(/*gguf=*/true); }

}  // namespace
}  // namespace quire::models
