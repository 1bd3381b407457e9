#pragma once
#include <cstdint>
#include <string>

#include "formats/gguf/translator.h"

// What several architectures of GGUF files share, and those that are not in architectures.cpp.
namespace quire::formats {

// The file's window, or none.
void add_window(GgufTranslator& t);
// A cap on scores or logits, under these keys; null if there is none.
void add_cap(GgufTranslator& t, const char* gguf, const char* hugging_face);
// Norms behind attention, before the MLP and behind it, in the family's words.
void rename_outer_norms(GgufTranslator& t, const char* mixer_output, const char* ffn_input,
                        const char* ffn_output);
// How many experts there are (under this key) and how many a token goes to.
void add_experts(GgufTranslator& t, const char* count);
// The width of an expert.
int64_t expert_width(const GgufTranslator& t);
// Stacked experts as mlx-lm has them for a part of this name ("block_sparse_moe.").
void rename_stacked_experts(GgufTranslator& t, const std::string& part);
void rename_shared_expert(GgufTranslator& t, const std::string& part);

// How scores become weights: expert_gating_func.
enum class Gating : uint8_t { kSoftmax = 1, kSigmoid = 2 };
Gating gating_of(const GgufTranslator& t, Gating fallback);
// Throws LoadError if the file says another one.
void expect_gating(const GgufTranslator& t, Gating gating);
// Throws LoadError if there is another number than this.
void expect_number(const GgufTranslator& t, const char* name, double wanted);

// architectures_moe.cpp
void deepseek2(GgufTranslator& t);
void dots1(GgufTranslator& t);
void ernie45_moe(GgufTranslator& t);
void glm4_moe(GgufTranslator& t);
void granite_moe(GgufTranslator& t);
void hunyuan_moe(GgufTranslator& t);
void llama4(GgufTranslator& t);
void minimax_m2(GgufTranslator& t);
void olmoe(GgufTranslator& t);
void phimoe(GgufTranslator& t);
void qwen2_moe(GgufTranslator& t);
void qwen3_moe(GgufTranslator& t);
// architectures_hybrid.cpp
void qwen3_next(GgufTranslator& t);
void qwen35(GgufTranslator& t);
void qwen35_moe(GgufTranslator& t);
// architectures_gemma4.cpp
void gemma4(GgufTranslator& t);
// architectures.cpp, with the parts that a mixture shares
void add_granite(GgufTranslator& t, const char* architecture);
void add_hunyuan(GgufTranslator& t, const char* architecture);

}  // namespace quire::formats
