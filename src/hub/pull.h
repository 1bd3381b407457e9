#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "hub/model_id.h"
#include "hub/settings.h"

namespace quire::hub {

struct PullOptions {
  bool weights = true;  // false: only what a tokenizer is made of
  // A hub that cannot be asked is no error if the cache has the model.
  bool cache_will_do = false;
  // Called once all files but the weights are in the folder, if weights are to be fetched: throws
  // LoadError if nobody could use them.
  std::function<void(const std::string& folder)> check;
  int output = 2;  // descriptor for progress and notices
};

// The folder of a model's snapshot in the cache, with all files that Quire reads; what is missing
// or has changed is fetched, four files at a time, each checked by its hash. Other processes may
// do the same at the same time, huggingface_hub among them. What it leaves behind after an error,
// or when the process is killed, a second call completes. Throws LoadError with what is wrong and
// what to do.
std::string pull(const ModelId& id, const Settings& settings, const PullOptions& options);

// What can be said of a model without its weights.
struct Preview {
  std::string folder;         // configs and tokenizer are in it
  bool is_whole = false;      // and the weights, too
  uint64_t weight_bytes = 0;  // that a pull would fetch
};

// From the cache if the model is there, else from the hub, of which it fetches all but the weights.
// Throws LoadError as pull.
Preview preview(const ModelId& id, const Settings& settings, int output = 2);

}  // namespace quire::hub
