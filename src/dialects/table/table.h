#pragma once
#include "dialects/dialect.h"

namespace quire::dialects {

// One function and one file a dialect; a new one is listed in dialect.cpp, too.
const Dialect& hermes();
const Dialect& qwen3_coder();
const Dialect& qwen3_5();
const Dialect& llama3_json();
const Dialect& pythonic();
const Dialect& llama4_pythonic();
const Dialect& mistral_v3();
const Dialect& mistral_v11();
const Dialect& mistral_v13();
const Dialect& phi4_mini();
const Dialect& gemma3_prompted();
const Dialect& functiongemma();
const Dialect& gemma4();
const Dialect& harmony();
const Dialect& glm45();
const Dialect& glm47();
const Dialect& deepseek_r1();
const Dialect& deepseek_v3();
const Dialect& deepseek_v31();
const Dialect& deepseek_v32();
const Dialect& granite3();
const Dialect& granite4();
const Dialect& smollm3();
const Dialect& exaone4();
const Dialect& olmo3();
const Dialect& seed_oss();
const Dialect& lfm2();
const Dialect& minimax_m2();
const Dialect& kimi_k2();
const Dialect& nemotron_nano_v2();
const Dialect& nemotron3();
const Dialect& hunyuan_a13b();
const Dialect& command_r();
const Dialect& command_a();

}  // namespace quire::dialects
