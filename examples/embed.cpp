// Quire as a library: load a model, submit two requests, print their tokens as they come.
//   embed MODEL_DIR
#include <cstdio>
#include <future>
#include <memory>

#include "engine/engine.h"
#include "engine/memory_budget.h"
#include "models/model.h"
#include "text/detokenizer.h"

using namespace quire;

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: embed MODEL_DIR\n"), 2;
  const auto checkpoint = formats::Checkpoint::open(argv[1]);
  const auto tokenizer = text::Tokenizer::load(argv[1]);
  auto model = models::load_model(ops::make_context(/*num_threads=*/2), checkpoint);

  engine::EngineOptions options;
  for (const int64_t id : checkpoint.eos_token_ids())
    options.scheduler.eos_token_ids.push_back(static_cast<int32_t>(id));
  const auto budget = engine::plan_memory(*model, options.scheduler, {.kv_cache_bytes = 256 << 20});
  options.scheduler.num_blocks = budget.num_blocks;
  options.scheduler.max_model_len = budget.max_model_len;
  engine::Engine engine(std::move(model), options);

  std::promise<void> done[2];
  const char* prompts[2] = {"Once upon a time", "What is 123 + 456?"};
  for (int i = 0; i < 2; ++i) {
    engine::Request request;
    request.prompt = tokenizer->encode(prompts[i], /*add_special_tokens=*/true).value();
    request.sampling.temperature = 0;
    request.sampling.max_tokens = 24;
    auto text = std::make_shared<text::Detokenizer>(tokenizer);
    request.sink = [i, text, &done](engine::TokenEvent&& event) {  // on the engine thread
      std::string delta;
      for (const int32_t token : event.tokens) delta += text->push(token);
      if (event.finish) delta += text->flush();
      std::printf("%d: %s\n", i, delta.c_str());
      if (event.finish) done[i].set_value();
    };
    const auto id = engine.submit(std::move(request));
    if (!id) return std::fprintf(stderr, "refused: %s\n", id.error().message.c_str()), 1;
  }
  for (auto& d : done) d.get_future().wait();
}
