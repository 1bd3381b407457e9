#include "formats/gguf/architecture_parts.h"

#include <string>
#include <variant>

namespace quire::formats {
namespace {

constexpr IntRange kExperts{.min = 1, .max = 1 << 16};
constexpr IntRange kWidth{.min = 1, .max = 1 << 24};

const char* name_of(Gating gating) { return gating == Gating::kSoftmax ? "softmax" : "sigmoid"; }

}  // namespace

void add_window(GgufTranslator& t) {
  const auto window = t.find_int("attention.sliding_window", {.min = 0, .max = INT32_MAX});
  t.config["sliding_window"] = window.value_or(0);
}

void add_cap(GgufTranslator& t, const char* gguf, const char* hugging_face) {
  const auto cap = t.find_factor_or_zero(gguf);
  t.config[hugging_face] = cap ? json::value(*cap) : json::value();
}

void rename_outer_norms(GgufTranslator& t, const char* mixer_output, const char* ffn_input,
                        const char* ffn_output) {
  t.rename("post_attention_norm", mixer_output);
  t.rename("ffn_norm", ffn_input);
  t.rename("post_ffw_norm", ffn_output);
}

void add_experts(GgufTranslator& t, const char* count) {
  const int64_t experts = t.require_int("expert_count", kExperts);
  t.config[count] = experts;
  t.config["num_experts_per_tok"] = t.require_int("expert_used_count", {.min = 1, .max = experts});
}

int64_t expert_width(const GgufTranslator& t) {
  const auto width = t.find_int("expert_feed_forward_length", kWidth);
  return width ? *width : t.require_int("feed_forward_length", kWidth);
}

void rename_stacked_experts(GgufTranslator& t, const std::string& part) {
  for (const std::string matrix : {"gate", "up", "down"})
    t.rename("ffn_" + matrix + "_exps", part + "switch_mlp." + matrix + "_proj");
}

void rename_shared_expert(GgufTranslator& t, const std::string& part) {
  for (const std::string matrix : {"gate", "up", "down"})
    t.rename("ffn_" + matrix + "_shexp", part + matrix + "_proj");
}

Gating gating_of(const GgufTranslator& t, Gating fallback) {
  const auto found = t.find_int("expert_gating_func");
  if (!found || *found == 0) return fallback;
  if (*found == 1 || *found == 2) return static_cast<Gating>(*found);
  t.fail("expert_gating_func",
         "is " + std::to_string(*found) + "; supported are 1 (softmax) and 2 (sigmoid)");
}

void expect_gating(const GgufTranslator& t, Gating gating) {
  const Gating found = gating_of(t, gating);
  if (found != gating)
    t.fail("expert_gating_func", std::string("is ") + name_of(found) +
                                     "; for this architecture, supported is " + name_of(gating));
}

void expect_number(const GgufTranslator& t, const char* name, double wanted) {
  const GgufValue* value = t.metadata().find(t.key(name));
  if (!value) return;
  const bool is_whole = std::holds_alternative<int64_t>(value->value);
  const double found = is_whole ? static_cast<double>(*t.find_int(name)) : *t.find_double(name);
  if (found != wanted)
    t.fail(name, "is " + std::to_string(found) + "; supported is " + std::to_string(wanted));
}

}  // namespace quire::formats
