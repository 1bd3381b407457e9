#include "cli/flag_groups.h"

#include <sstream>

namespace quire::cli {
namespace {

constexpr FlagGroup kGroups[] = {
    {"Model",
     "--config --model --chat-template --dtype --max-model-len --quant-activations --seed"},
    {"Memory",
     "--gpu-memory-utilization --kv-cache-memory --kv-cache-dtype --block-size "
     "--num-gpu-blocks-override "
     "--enable-prefix-caching --state-checkpoint-slots --state-checkpoint-interval "
     "--share-prefix-cache --max-buffered-bytes"},
    {"Scheduling",
     "--max-num-seqs --max-num-batched-tokens --max-num-queued-reqs --max-num-queued-tokens "
     "--max-step-time --scheduling-policy --async-scheduling"},
    {"Computing", "--device --threads --spread-memory --portable-bits"},
    {"Answers", "--system --temperature --top-p --top-k --min-p --max-tokens"},
    {"Embeddings and reranking", "--runner --pooling --rerank-template --rerank-tokens"},
    {"Tools and reasoning", "--tool-call-parser --reasoning-parser --structured-output-whitespace"},
    {"Adapters", "--lora-modules --max-loras --max-lora-rank"},
    {"Server",
     "--host --port --ssl-certfile --ssl-keyfile --uds --uds-mode --no-page --root-path "
     "--served-model-name "
     "--http-threads --shutdown-timeout "
     "--sse-ping-interval"},
    {"Access and limits",
     "--api-key --api-key-file --allowed-origins --max-concurrent-requests-per-key "
     "--max-generations-per-key --min-priority --trust-request-chat-template --keep-billing-header "
     "--max-logprobs "
     "--max-body-size"},
    {"Logs and measurements",
     "--disable-cache-doctor --disable-access-log --disable-access-log-for-endpoints --profile"},
};

}  // namespace

std::span<const FlagGroup> flag_groups() { return kGroups; }

void group_flags(CLI::App& command) {
  for (const FlagGroup& group : kGroups) {
    std::istringstream names{std::string(group.flags)};
    for (std::string name; names >> name;)
      if (CLI::Option* option = command.get_option_no_throw(name))
        option->group(std::string(group.heading));
  }
}

}  // namespace quire::cli
