#include "cli/foreign_flags.h"

#include <algorithm>

namespace quire::cli {
namespace {

constexpr const char* kOneProcess = "Quire runs one process on one machine";
constexpr const char* kNoEager = "how a step is launched follows from the step and the device";
constexpr const char* kNoCompiler = "nothing is compiled at run time";
constexpr const char* kNotYet = "not supported yet";
constexpr const char* kInConfig = "not supported: edit the model's config.json";
constexpr const char* kTextOnly = "models read text only";
constexpr const char* kOneDevice = "is llama.cpp's; a model is in the memory of one device";
constexpr const char* kOneLog = "is llama.cpp's; the log has one form";
constexpr const char* kByRequest = "is llama.cpp's; requests bring it";
constexpr const char* kOwnFiles = "not supported: a model is read with its own files";

// Of a switch behind which any whole numbers are its values.
constexpr std::string_view kNumbers = "#";

constexpr ForeignFlag kFlags[] = {
    // vLLM's, most often typed first.
    {"--tensor-parallel-size -tp", true, "1", kOneProcess},
    {"--pipeline-parallel-size -pp", true, "1", kOneProcess},
    {"--data-parallel-size -dp --data-parallel-size-local -dpl", true, "1", kOneProcess},
    {"--decode-context-parallel-size -dcp --nnodes --api-server-count -asc", true, "1",
     kOneProcess},
    {"--node-rank --data-parallel-rank -dpn", true, "0", kOneProcess},
    {"--data-parallel-backend -dpb --all2all-backend --distributed-timeout-seconds", true, "*",
     kOneProcess},
    {"--data-parallel-address -dpa --data-parallel-rpc-port -dpp --master-addr --master-port", true,
     "", kOneProcess},
    {"--enable-dbo --data-parallel-hybrid-lb --data-parallel-external-lb "
     "--disable-nccl-for-dp-synchronization --eplb-log-balancedness --aggregate-engine-logging",
     false, "*", kOneProcess},
    {"--dbo-decode-token-threshold --dbo-prefill-token-threshold --eplb-config "
     "--expert-placement-strategy --num-redundant-experts --eplb-window-size "
     "--eplb-step-interval --data-parallel-supervisor-port",
     true, "*", kOneProcess},
    {"--distributed-executor-backend", true, "*", kOneProcess},
    {"--enable-expert-parallel", false, "*", kOneProcess},
    {"--disable-custom-all-reduce", false, "*", kOneProcess},
    {"--quantization -q", true, "",
     "not supported: the checkpoint says how it is quantised; `quire quantize` makes 4- and 8-bit "
     "weights"},
    {"--enable-chunked-prefill", false, "*", "long prompts are always fed in chunks"},
    {"--no-enable-chunked-prefill", false, "",
     "not supported: --max-num-batched-tokens sets the size of a prompt's chunks"},
    {"--max-num-partial-prefills --max-long-partial-prefills --long-prefill-token-threshold", true,
     "", "not supported: waiting prompts share every step, and --max-step-time bounds it"},
    {"--trust-remote-code", false, "*", "code of a checkpoint is never run"},
    {"--swap-space", true, "*", "preempted requests are computed again, not swapped out"},
    {"--preemption-mode", true, "recompute", "preempted requests are computed again"},
    {"--cpu-offload-gb", true, "0", "a model is in the memory of one device"},
    {"--enforce-eager", false, "*", kNoEager},
    {"--max-seq-len-to-capture", true, "*", kNoEager},
    {"--compilation-config --optimization-level -O", true, "*", kNoCompiler},
    {"-O0 -O1 -O2 -O3", false, "*", kNoCompiler},
    {"--use-v2-block-manager", false, "*", "there is one block manager"},
    {"--num-scheduler-steps", true, "1", "a step is one token of every sequence"},
    {"--disable-log-requests --no-enable-log-requests", false, "*", "prompts are never logged"},
    {"--disable-log-stats", false, "*", "statistics are at /metrics only"},
    {"--max-log-len", true, "*", "prompts are never logged"},
    {"--enable-log-requests --enable-log-outputs", false, "",
     "not supported: prompts and answers are never logged"},
    {"--uvicorn-log-level", true, "*", "there is no uvicorn"},
    {"--disable-fastapi-docs", false, "*", "there are no such pages"},
    {"--enable-prompt-tokens-details", false, "*", "answers always have them"},
    {"--enable-server-load-tracking", false, "*", "/load is always there"},
    {"--enable-request-id-headers", false, "*", "answers always have X-Request-Id"},
    {"--exclude-tools-when-tool-choice-none", false, "*", "that is how it is done"},
    {"--enable-force-include-usage", false, "",
     "not supported: requests ask for it with stream_options.include_usage"},
    {"--load-format", true, "auto safetensors gguf", "the files say what they are"},
    {"--safetensors-load-strategy", true, "lazy eager", "weights are packed while they are read"},
    {"--tokenizer-mode", true, "auto hf", "tokenizer.json is read"},
    {"--guided-decoding-backend", true, "auto guidance llguidance", "llguidance is what is used"},
    {"--generation-config", true, "auto", "the model folder's generation_config.json is read"},
    {"--task", true, "auto generate", "vLLM calls it --runner now"},
    {"--pooler-config --override-pooler-config", true, "",
     "not supported: --pooling chooses last or mean, requests `normalize`"},
    {"--stream-interval", true, "1", "every token is sent"},
    {"--chat-template-content-format", true, "auto", "the template itself decides"},
    {"--response-role", true, "assistant", "the role of answers"},
    {"--limit-mm-per-prompt", true, "*", kTextOnly},
    {"--allowed-media-domains", true, "*", kTextOnly},
    {"--download-dir", true, "", "not supported: HF_HUB_CACHE names the folder for models"},
    {"--enable-auto-tool-choice", false, "*", "tool calls are parsed anyway"},
    {"--tool-parser-plugin --tool-server", true, "", kNotYet},
    {"--speculative-config --speculative-model --num-speculative-tokens", true, "", kNotYet},
    {"--enable-lora", false, "*", "--lora-modules alone names the adapters that are served"},
    {"--max-cpu-loras", true, "*", "all adapters are in memory, any number of them"},
    {"--lora-dtype", true, "auto", "adapters are in the model's dtype"},
    {"--fully-sharded-loras", false, "*", kOneProcess},
    {"--default-chat-template-kwargs --chat-template-kwargs", true, "",
     "not supported: requests bring chat_template_kwargs, or give --chat-template"},
    {"--return-tokens-as-token-ids", false, "",
     "not supported: requests ask for it with return_tokens_as_token_ids"},
    {"--override-generation-config", true, "",
     "not supported: edit the model's generation_config.json"},
    {"--hf-overrides --rope-scaling --rope-theta", true, "", kInConfig},
    {"--revision", true, "", "not supported: write ORG/NAME@REV"},
    {"--tokenizer --code-revision --tokenizer-revision --hf-config-path", true, "", kOwnFiles},
    {"--ssl-ca-certs --ssl-cert-reqs", true, "",
     "not supported: clients show keys (--api-key), no certificates"},
    {"--enable-ssl-refresh", false, "", "not supported: SIGHUP reads the certificate again"},
    {"--allowed-methods --allowed-headers", true, "",
     "not supported: pages of --allowed-origins may send every method and header there is"},
    {"--allow-credentials", false, "", "not supported: there are no cookies; pages send the key"},
    {"--middleware", true, "", "not supported: put a proxy in front"},
    {"--allowed-local-media-path", true, "", "not supported: models read text only"},
    {"--otlp-traces-endpoint", true, "", "not supported: /metrics has the figures"},
    {"--disable-uvicorn-access-log", false, "", "not supported: use --disable-access-log"},
    {"--log-config-file", true, "", "not supported: the log goes to stderr, in one form"},
    {"--h11-max-incomplete-event-size --h11-max-header-count", true, "",
     "not supported: heads have 16 KiB and 128 headers"},
    {"--disable-frontend-multiprocessing", false, "*", kOneProcess},
    {"--headless", false, "", kOneProcess},
    {"--data-parallel-start-rank -dpr", true, "0", kOneProcess},
    {"--enable-eplb --ray-workers-use-nsight", false, "*", kOneProcess},
    {"--max-parallel-loading-workers", true, "*", kOneProcess},
    {"--worker-cls --worker-extension-cls --scheduler-cls --logits-processor-pattern "
     "--logits-processors --io-processor-plugin --reasoning-parser-plugin --additional-config",
     true, "", "not supported: nothing of vLLM's is there to be replaced"},
    {"--enable-tokenizer-info-endpoint", false, "*", "/tokenizer_info is always there"},
    {"--tokens-only --skip-tokenizer-init --enable-prompt-embeds", false, "",
     "not supported: prompts are texts or token ids, and the tokenizer is read"},
    {"--convert", true, "auto none", "a model is served as what its config says"},
    {"--model-impl", true, "auto vllm", "models are Quire's own"},
    {"--config-format", true, "auto hf", "config.json is read"},
    {"--model-loader-extra-config --ignore-patterns", true, "", kOwnFiles},
    {"--pt-load-map-location", true, "*", "weights are safetensors or GGUF"},
    {"--use-tqdm-on-load", false, "*", "loading prints one line"},
    {"--hf-token -hft", true, "", "not supported: HF_TOKEN or the token file has it"},
    {"--logprobs-mode", true, "raw_logprobs", "they are of the logits as the model made them"},
    {"--disable-sliding-window", false, "", kInConfig},
    {"--disable-cascade-attn", false, "*", "there is no cascade attention"},
    {"--attention-backend --attention-config", true, "",
     "not supported: QUIRE_CPU_ISA limits the kernels"},
    {"--guided-decoding-disable-fallback", false, "*", "there is one backend"},
    {"--guided-decoding-disable-any-whitespace", false, "",
     "not supported: --structured-output-whitespace bounds white space"},
    {"--structured-outputs-config", true, "", "not supported: llguidance is what is used"},
    {"--prefix-caching-hash-algo", true, "*", "cached prefixes are compared by their tokens"},
    {"--calculate-kv-scales", false, "*", "an 8-bit cache makes its own scales"},
    {"--kv-sharing-fast-prefill", false, "", kNotYet},
    {"--mamba-cache-dtype --mamba-ssm-cache-dtype", true, "auto",
     "states are in the dtype that they have"},
    {"--mamba-block-size", true, "", "not supported: use --state-checkpoint-interval"},
    {"--mamba-cache-mode", true, "", "not supported: states are saved for cached prefixes"},
    {"--kv-offloading-size --kv-offloading-backend", true, "",
     "not supported: the KV cache is in the memory of one device"},
    {"--kv-cache-metrics --enable-log-deltas --log-error-stack", false, "",
     "not supported: /metrics and the log have one form"},
    {"--ssl-ciphers", true, "", "not supported: TLS 1.2 and newer with the library's list"},
    {"--disable-hybrid-kv-cache-manager", false, "",
     "not supported: blocks that no window sees are always given back"},
    {"--kv-transfer-config --kv-events-config", true, "", kNotYet},
    {"--enable-sleep-mode", false, "", kNotYet},
    {"--media-io-kwargs --mm-processor-kwargs --mm-processor-cache-gb --mm-processor-cache-type "
     "--mm-shm-cache-max-object-size-mb --mm-encoder-attn-backend --video-pruning-rate "
     "--default-mm-loras",
     true, "*", kTextOnly},
    {"--disable-mm-preprocessor-cache --disable-chunked-mm-input --skip-mm-profiling "
     "--language-model-only --interleave-mm-strings --enable-mm-embeds "
     "--enable-multimodal-encoder-data-parallel",
     false, "*", kTextOnly},
    {"--mm-encoder-tp-mode", true, "*", kTextOnly},
    {"--lora-extra-vocab-size", true, "0", "adapters add no tokens"},
    {"--show-hidden-metrics-for-version --collect-detailed-traces", true, "",
     "not supported: /metrics has the figures"},
    {"--max-cudagraph-capture-size", true, "*", kNoEager},
    {"--cuda-graph-sizes --cudagraph-capture-sizes", false, "*", kNoEager, kNumbers},
    {"--override-attention-dtype", true, "", "not supported: --dtype sets that of all steps"},
    {"--guided-decoding-disable-additional-properties", false, "",
     "not supported: a schema says it by additionalProperties"},
    {"--enable-per-request-metrics", false, "", "not supported: /metrics has the figures"},
    {"--fingerprint-mode", true, "full hash", "system_fingerprint says which bits an answer has"},
    {"--fingerprint-value", true, "",
     "not supported: system_fingerprint says which bits an answer has"},
    {"--max-num-scheduled-tokens", true, "", "not supported: use --max-num-batched-tokens"},
    {"--grpc", false, "", "not supported: the server speaks HTTP"},
    {"--tokenizer-pool-size --tokenizer-pool-type --tokenizer-pool-extra-config", true, "*",
     "texts are tokenised by threads"},
    {"--disable-async-output-proc", false, "", "not supported: use --no-async-scheduling"},
    {"--num-lookahead-slots", true, "0", "no tokens are drafted"},
    {"--scheduler-delay-factor", true, "0 0.0", "requests start as soon as they fit"},
    {"--multi-step-stream-outputs", false, "*", "a step is one token of every sequence"},
    {"--enable-offline-docs", false, "", "not supported: /openapi.json is all there is"},

    // llama.cpp's.
    {"-cb --cont-batching", false, "*", "requests always share steps"},
    {"-nocb --no-cont-batching", false, "", "is llama.cpp's; requests always share steps"},
    {"--jinja", false, "*", "templates are always rendered"},
    {"--no-jinja", false, "", "is llama.cpp's; templates are always rendered"},
    {"-fa --flash-attn", false, "on auto 1 true enabled", "attention is always fused",
     "on auto 1 true enabled off 0 false disabled"},
    {"--no-mmap", false, "*", "what is kept of a file is copied"},
    {"-lm --load-mode", true, "auto none", "what is kept of a file is copied"},
    {"-lzm --lazy-mode", true, "auto off", "all weights are in memory"},
    {"--no-warmup", false, "*", "no text is run at the start"},
    {"--warmup", false, "", "is llama.cpp's; no text is run at the start"},
    {"--no-escape", false, "*", "texts are taken as they are"},
    {"-e --escape", false, "", "is llama.cpp's; texts are taken as they are"},
    {"--check-tensors -bs --backend-sampling", false, "", "is llama.cpp's; not supported yet"},
    {"--op-offload --no-op-offload", false, "*", "all of a model runs on one device"},
    {"--list-devices", false, "", "is llama.cpp's; --device names the kinds there are"},
    {"--repack --no-host", false, "*", "weights are always packed for the device"},
    {"-kvo --kv-offload", false, "*", "the cache is where the model is"},
    {"-nr --no-repack", false, "", "is llama.cpp's; weights are packed for the device"},
    {"-dt --defrag-thold", true, "*", "a cache of pages needs no defragmentation"},
    {"--metrics", false, "*", "/metrics is always there"},
    {"--no-context-shift", false, "*", "a context is never shifted"},
    {"--context-shift", false, "", "is llama.cpp's; a request ends where the context does"},
    {"--chat-template-file", true, "", "is llama.cpp's; use --chat-template"},
    {"--api-prefix", true, "", "is llama.cpp's; use --root-path"},
    {"--threads-http", true, "", "is llama.cpp's; use --http-threads"},
    {"--lora --lora-scaled", true, "", "is llama.cpp's; use --lora-modules"},
    {"--ssl-key-file", true, "", "is llama.cpp's; use --ssl-keyfile"},
    {"--ssl-cert-file", true, "", "is llama.cpp's; use --ssl-certfile"},
    {"-s", true, "", "is llama.cpp's; use --seed"},
    {"-to --timeout", true, "", "is llama.cpp's; docs/operations.md has the timeouts"},
    {"--embedding --embeddings --reranking --rerank", false, "",
     "is llama.cpp's; use --runner pooling"},
    {"--no-webui --no-ui", false, "", "is llama.cpp's; Quire has --no-page"},
    {"-m", true, "", "is llama.cpp's; give the GGUF file or model folder as MODEL"},
    {"-c --ctx-size", true, "", "is llama.cpp's; use --max-model-len"},
    {"-t", true, "", "is llama.cpp's; use --threads"},
    {"-tb --threads-batch", true, "", "is llama.cpp's; use --threads, for prompts too"},
    {"-ngl --n-gpu-layers --gpu-layers", true, "",
     "is llama.cpp's; --device cuda takes all layers to a GPU, --device cpu none"},
    {"-b -ub --batch-size --ubatch-size", true, "", "is llama.cpp's; use --max-num-batched-tokens"},
    {"-np --parallel", true, "", "is llama.cpp's; use --max-num-seqs"},
    {"-ctk -ctv --cache-type-k --cache-type-v", true, "", "is llama.cpp's; use --kv-cache-dtype"},
    {"--mlock", false, "", "is llama.cpp's; memory is not locked"},
    {"-a --alias", true, "", "is llama.cpp's; use --served-model-name"},
    {"-n --predict --n-predict", true, "",
     "is llama.cpp's; requests bring max_tokens, `quire run` has --max-tokens"},
    {"-hf -hfr --hf-repo", true, "", "is llama.cpp's; give ORG/NAME as MODEL"},
    {"-p --prompt", true, "", "is llama.cpp's; `quire run MODEL PROMPT` answers a prompt"},
    {"-sys --system-prompt", true, "", "is llama.cpp's; use --system"},
    {"--temp", true, "",
     "is llama.cpp's; `quire run` has --temperature, requests to a server bring theirs"},
    {"--repeat-penalty", true, "", "is llama.cpp's; requests bring repetition_penalty"},
    {"--repeat-last-n", true, "", "is llama.cpp's; not supported: penalties have no window"},
    {"-r --reverse-prompt", true, "", "is llama.cpp's; requests bring stop"},
    {"-j --json-schema -jf --json-schema-file", true, "",
     "is llama.cpp's; requests bring response_format"},
    {"--grammar --grammar-file", true, "", "is llama.cpp's; requests bring grammar"},
    {"-l --logit-bias --presence-penalty --frequency-penalty", true, "", kByRequest},
    {"--ignore-eos", false, "", kByRequest},
    {"-sp --special", false, "", "is llama.cpp's; requests bring skip_special_tokens"},
    {"--samplers --sampler-seq --sampling-seq --top-nsigma --top-n-sigma --xtc-probability "
     "--xtc-threshold --typical --typical-p --dry-multiplier --dry-base --dry-allowed-length "
     "--dry-penalty-last-n --dry-sequence-breaker --mirostat --mirostat-lr --mirostat-ent "
     "--adaptive-target --adaptive-decay --dynatemp-range --dynatemp-exp --control-vector "
     "--control-vector-scaled --reasoning-budget-message",
     true, "", "is llama.cpp's; not supported yet"},
    {"-rea --reasoning", true, "auto", "requests bring enable_thinking"},
    {"--reasoning-preserve --no-reasoning-preserve", false, "",
     "is llama.cpp's; requests bring chat_template_kwargs"},
    {"--reasoning-effort", true, "default", "requests bring reasoning_effort"},
    {"--embd-normalize", true, "2", "requests bring normalize"},
    {"--reasoning-format", true, "auto deepseek",
     "--reasoning-parser none leaves thoughts in the text"},
    {"--reasoning-budget", true, "-1", "requests bring thinking_token_budget"},
    {"-kvu --kv-unified", false, "*", "all sequences share one paged cache"},
    {"-no-kvu --no-kv-unified", false, "", "is llama.cpp's; all sequences share one paged cache"},
    {"-ctxcp --ctx-checkpoints --swa-checkpoints", true, "",
     "is llama.cpp's; use --state-checkpoint-slots"},
    {"-cms --checkpoint-min-step", true, "", "is llama.cpp's; use --state-checkpoint-interval"},
    {"--cache-prompt", false, "*", "the prefix cache is on"},
    {"--no-cache-prompt", false, "", "is llama.cpp's; use --no-enable-prefix-caching"},
    {"--cache-idle-slots", false, "*", "prefixes stay cached when their requests end"},
    {"--no-cache-idle-slots", false, "", "is llama.cpp's; use --no-enable-prefix-caching"},
    {"--cache-reuse", true, "0", "keys and values are not moved"},
    {"-cram --cache-ram", true, "", "is llama.cpp's; use --kv-cache-memory"},
    {"--swa-full", false, "", "is llama.cpp's; blocks that no window sees are given back"},
    {"-fit --fit", true, "on", "what fits follows from the memory"},
    {"--slots --props", false, "", "is llama.cpp's; /metrics has the figures"},
    {"--no-slots", false, "*", "there is no /slots"},
    {"--slot-save-path", true, "", "is llama.cpp's; cached prefixes are in memory alone"},
    {"--webui --ui", false, "*", "the page is there unless --no-page is given"},
    {"-md --model-draft --draft --draft-max --draft-min --draft-n -lcs --lookup-cache-static -lcd "
     "--lookup-cache-dynamic",
     true, "", kNotYet},
    {"-mm --mmproj -mmu --mmproj-url --media-path", true, "", kTextOnly},
    {"--no-mmproj --no-mmproj-auto --mmproj-auto --mmproj-offload --no-mmproj-offload", false, "*",
     kTextOnly},
    {"-mmdev --mmproj-device --image-min-tokens --image-max-tokens", true, "*", kTextOnly},
    {"--numa -ot --override-tensor -ts --tensor-split -sm --split-mode -mg --main-gpu -ncmoe "
     "--n-cpu-moe --rpc",
     true, "", kOneDevice},
    {"-cmoe --cpu-moe -nkvo --no-kv-offload", false, "", kOneDevice},
    {"-C --cpu-mask -Cr --cpu-range --cpu-strict -Cb --cpu-mask-batch -Crb --cpu-range-batch "
     "--cpu-strict-batch --prio --prio-batch --poll --poll-batch",
     true, "", "is llama.cpp's; taskset and nice do that"},
    {"--rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor "
     "--yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --override-kv",
     true, "", "is llama.cpp's; the model says it"},
    {"-fitt --fit-target -fitc --fit-ctx", true, "", "is llama.cpp's; use --max-model-len"},
    {"--keep", true, "", "is llama.cpp's; a request ends where the context does"},
    {"-mu --model-url -dr --docker-repo -hff --hf-file", true, "",
     "is llama.cpp's; give a GGUF file, or ORG/NAME, as MODEL"},
    {"--models-dir --models-preset --models-max", true, "",
     "is llama.cpp's; a server has one model"},
    {"--models-autoload", false, "*", "the model is loaded at the start"},
    {"--no-models-autoload", false, "", "is llama.cpp's; the model is loaded at the start"},
    {"--tags", true, "", "is llama.cpp's; models have no tags"},
    {"--tools --mcp-servers-config --mcp-servers-json", true, "",
     "is llama.cpp's; no tool is run here"},
    {"--cors-origins", true, "", "is llama.cpp's; use --allowed-origins"},
    {"--cors-methods --cors-headers", true, "",
     "is llama.cpp's; pages of --allowed-origins may send every method and header there is"},
    {"--no-cors-credentials", false, "*", "there are no cookies; pages send the key"},
    {"--cors-credentials", false, "", "is llama.cpp's; there are no cookies; pages send the key"},
    {"--reuse-port", false, "", "is llama.cpp's; a port has one server"},
    {"--log-prefix --log-timestamps --no-log-jsonl", false, "*",
     "lines of the log have a time and a level"},
    {"-v --verbose --log-verbose --log-disable --log-jsonl --no-log-prefix --no-log-timestamps",
     false, "", kOneLog},
    {"--perf", false, "", "is llama.cpp's; use --profile"},
    {"--no-perf", false, "*", "nothing is timed unless --profile is given"},
    {"-lv --verbosity --log-verbosity --log-file --log-colors", true, "", kOneLog},
    {"--offline", false, "", "is llama.cpp's; set HF_HUB_OFFLINE=1"},
    {"--path", true, "", "is llama.cpp's; there is no folder of files to serve"},
};

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t space = std::min(words.find(' '), words.size());
    if (words.substr(0, space) == word) return true;
    words.remove_prefix(std::min(words.size(), space + 1));
  }
  return false;
}

bool is_value_of(const ForeignFlag& flag, std::string_view argument) {
  if (flag.values != kNumbers) return has_word(flag.values, argument);
  return !argument.empty() && argument.find_first_not_of("0123456789") == std::string_view::npos;
}

// Letters to change to make one of the other: insertions, deletions, replacements, and swaps of
// neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

// vLLM takes underscores in its flags' names, and no flag of Quire's has one.
std::string with_dashes(std::string name) {
  if (name.starts_with("--")) std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace

std::span<const ForeignFlag> foreign_flags() { return kFlags; }

const ForeignFlag* find_foreign_flag(std::string name) {
  if (name.size() < 2 || name[0] != '-') return nullptr;
  std::replace(name.begin(), name.end(), '_', '-');
  for (const ForeignFlag& flag : kFlags)
    if (has_word(flag.names, name)) return &flag;
  // vLLM's switches have a form that turns them off. It changes nothing where the other does not.
  if (!name.starts_with("--no-")) return nullptr;
  const ForeignFlag* on = find_foreign_flag("--" + name.substr(5));
  return on && !on->takes_value && on->harmless == "*" ? on : nullptr;
}

Result<std::string, std::string> judge_foreign_flag(const ForeignFlag& flag,
                                                    const std::string& name,
                                                    const std::string& value) {
  const std::string shown = name + (value.empty() ? "" : " " + value);
  const bool is_on = !flag.takes_value && value.empty() && !flag.harmless.empty();
  if (flag.harmless == "*" || is_on || has_word(flag.harmless, value))
    return shown + " changes nothing: " + std::string(flag.reason);
  std::string line = shown + ": " + std::string(flag.reason);
  if (!flag.harmless.empty()) line += "; accepted: " + std::string(flag.harmless);
  return Err{line};
}

Result<ScreenedArguments, std::string> screen_foreign_flags(
    const std::vector<std::string>& arguments, const TakesValue& takes_value) {
  ScreenedArguments out;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      out.arguments.insert(out.arguments.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i),
                           arguments.end());
      break;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const ForeignFlag* flag = find_foreign_flag(name);
    if (flag == nullptr) {
      if (equals + 1 == argument.size() && takes_value(with_dashes(name))) {
        out.arguments.insert(out.arguments.end(), {with_dashes(name), ""});
        continue;
      }
      out.arguments.push_back(with_dashes(name) + argument.substr(name.size()));
      if (takes_value(out.arguments.back()) && i + 1 < arguments.size())
        out.arguments.push_back(arguments[++i]);
      continue;
    }
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size() &&
               (flag->takes_value || is_value_of(*flag, arguments[i + 1]))) {
      value = arguments[++i];
    }
    while (flag->values == kNumbers && i + 1 < arguments.size() &&
           is_value_of(*flag, arguments[i + 1]))
      value += " " + arguments[++i];
    auto notice = judge_foreign_flag(*flag, name, value);
    if (!notice) return Err{notice.error()};
    out.notices.push_back(std::move(*notice));
  }
  return out;
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  std::string nearest;
  size_t best = std::min<size_t>(3, std::max<size_t>(1, word.size() / 3)) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance >= best) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace quire::cli
