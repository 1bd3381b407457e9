#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "formats/safetensors.h"

namespace quire::formats {

// A LoRA adapter as PEFT saves it: adapter_config.json and adapter_model.safetensors, open and
// checked as far as that goes without the model.
class LoraAdapter {
 public:
  // What is added to one linear layer: scaling * b a x. Tensors of 16- or 32-bit floats.
  struct Module {
    const RawTensor* a = nullptr;  // [rank, k]
    const RawTensor* b = nullptr;  // [n, rank]
  };

  // `max_rank` 0: any. Throws LoadError naming file, key or tensor for what would change the
  // outputs and is not done: other kinds of adapters than plain LoRA, trained biases, whole modules
  // or tokens, ranks or factors of single modules, and keys that this program does not know, unless
  // their values are null, false, 0 or empty.
  static LoraAdapter open(const std::string& dir, int64_t max_rank = 0);

  const std::string& dir() const { return dir_; }
  int64_t rank() const { return rank_; }
  // lora_alpha / r, or with use_rslora lora_alpha / sqrt(r) (arXiv:2312.03732).
  float scaling() const { return scaling_; }
  // By the module's name in the model: "model.layers.0.self_attn.q_proj".
  const std::map<std::string, Module>& modules() const { return modules_; }
  // Of names, shapes, dtypes, bytes and the factor. Reads the file. Throws LoadError.
  std::string digest() const;
  void check_unchanged() const { file_.check_unchanged(); }

 private:
  explicit LoraAdapter(SafetensorsFile file) : file_(std::move(file)) {}
  void read_config(int64_t max_rank);
  void take_tensors();

  std::string dir_;
  SafetensorsFile file_;
  int64_t rank_ = 0;
  float scaling_ = 0;
  std::map<std::string, Module> modules_;
};

}  // namespace quire::formats
