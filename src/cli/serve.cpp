#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/freed_memory.h"
#include "base/printable.h"
#include "bench/engine/profile_report.h"
#include "cli/commands.h"
#include "cli/flag_checks.h"
#include "cli/flag_groups.h"
#include "cli/listen_flags.h"
#include "cli/sampling_defaults.h"
#include "cli/serve_loop.h"
#include "cli/signals.h"
#include "cli/start_engine.h"
#include "dialects/dialect.h"
#include "formats/data_file.h"
#include "formats/pooling_config.h"
#include "server/api_keys.h"
#include "server/engine_adapter.h"
#include "server/http/ledger.h"
#include "server/log.h"
#include "server/origin_policy.h"
#include "server/server.h"
#include "server/web_origin.h"

namespace quire::cli {
namespace {

struct ServeFlags {
  ModelFlags model;
  server::ServerOptions server;
  ListenFlags listen;
  std::vector<std::string> api_keys, api_key_files;
  std::vector<std::string> allowed_origins;
  std::string max_body, max_buffered;
  std::string tool_call_parser, reasoning_parser;  // empty: what the chat template shows
  std::string runner = "auto";
  std::string pooling;          // empty: as the model's folder or file says
  std::string rerank_template;  // empty: Qwen3-Reranker's
  std::vector<std::string> rerank_tokens = server::RerankOptions().tokens;
  int64_t shutdown_timeout = 0;
  double ping_seconds = 15;
};

constexpr const char* kKeyVariable = "VLLM_API_KEY";
constexpr size_t kMaxKeyFileBytes = size_t{1} << 20;
// For the log to be read before the process is ended by force.
constexpr std::chrono::milliseconds kLastWordsTime{200};

// The keys of --api-key and of every --api-key-file. Throws LoadError if one cannot be one.
std::vector<std::string> collect_api_keys(const ServeFlags& flags) {
  std::vector<std::string> keys = flags.api_keys;
  for (const std::string& key : keys) server::check_api_key(key, "--api-key (or VLLM_API_KEY)");
  for (const std::string& path : flags.api_key_files) {
    const std::string text = formats::read_text_file(path, kMaxKeyFileBytes);
    for (std::string& key : server::parse_key_file(text, "--api-key-file " + printable(path)))
      keys.push_back(std::move(key));
  }
  return keys;
}

// A broken file changes nothing: those who had a key keep it.
void reload_api_keys(const ServeFlags& flags, server::Server& server) {
  if (flags.api_key_files.empty()) return;
  try {
    const auto keys = collect_api_keys(flags);
    server.replace_api_keys(keys);
    spdlog::info("SIGHUP: {} API keys", keys.size());
  } catch (const LoadError& error) {
    spdlog::error("SIGHUP: the API keys stay what they were: {}", error.what());
  }
}

void check_priorities(const ServeFlags& flags) {
  const bool has_floor = flags.server.limits.min_priority != server::RequestLimits().min_priority;
  if (has_floor && flags.model.policy != "priority")
    throw LoadError("--min-priority does nothing without --scheduling-policy priority");
}

// One client's part of the memory must hold a body and the document in it, which is at least as
// large.
void size_body(ServeFlags& flags) {
  server::http::HttpOptions& http = flags.server.http;
  if (!flags.max_buffered.empty())
    http.max_buffered_bytes =
        static_cast<size_t>(parse_size(flags.max_buffered, "--max-buffered-bytes"));
  constexpr size_t kLeastBuffered = size_t{1} << 20;
  if (http.max_buffered_bytes < kLeastBuffered)
    throw LoadError("--max-buffered-bytes of " + std::to_string(http.max_buffered_bytes) +
                    " bytes is of no use: no request would fit into less than 1MiB");
  const server::http::Ledger ledger(http.max_buffered_bytes, http.max_connections);
  const size_t most = ledger.limit_of_one() / 2;
  http.max_body_bytes = std::min(http.max_body_bytes, most);
  if (flags.max_body.empty()) return;
  const int64_t wanted = parse_size(flags.max_body, "--max-body-size");
  http.max_body_bytes = static_cast<size_t>(wanted);
  if (http.max_body_bytes > most)
    throw LoadError("--max-body-size of " + std::to_string(wanted) +
                    " bytes is of no use: --max-buffered-bytes of " +
                    std::to_string(http.max_buffered_bytes) + " lets one client have bodies of " +
                    std::to_string(most));
}

// Connections that are there keep what they began with.
void reload_certificate(const ServeFlags& flags, server::Server& server) {
  if (flags.listen.certificate_file.empty()) return;
  try {
    server.replace_tls(read_certificate(flags.listen));
    spdlog::info("SIGHUP: new connections get the certificate in {}",
                 printable(flags.listen.certificate_file));
  } catch (const LoadError& error) {
    spdlog::error("SIGHUP: the certificate stays what it was: {}", error.what());
  }
}

void reload(const ServeFlags& flags, server::Server& server) {
  if (flags.api_key_files.empty() && flags.listen.certificate_file.empty())
    return spdlog::info("SIGHUP: there is no file to read again");
  reload_api_keys(flags, server);
  reload_certificate(flags, server);
}

std::optional<const dialects::Dialect*> find_parser(const std::string& flag,
                                                    const std::string& name) {
  if (name.empty() || name == "auto") return std::nullopt;
  if (name == "none") return nullptr;
  if (const dialects::Dialect* dialect = dialects::find_dialect(name)) return dialect;
  throw LoadError(flag + ": there is no parser \"" + printable(name) +
                  "\"; `quire parse-output --list` names them, \"none\" switches it off");
}

server::ParserChoice parser_choice(const ServeFlags& flags) {
  const server::ParserChoice choice{find_parser("--tool-call-parser", flags.tool_call_parser),
                                    find_parser("--reasoning-parser", flags.reasoning_parser)};
  const dialects::Dialect* reasoning = choice.reasoning.value_or(nullptr);
  if (reasoning != nullptr && reasoning->reasoning.empty() && reasoning->message == nullptr)
    throw LoadError("--reasoning-parser: " + std::string(reasoning->name) + " has no reasoning");
  return choice;
}

// `of_file`: what a GGUF file says.
server::PoolingDefaults pooling_defaults(const ServeFlags& flags,
                                         std::optional<formats::PoolingMode> of_file) {
  const auto of_model = [&] {
    return of_file ? *of_file : formats::read_pooling_mode(flags.model.model);
  };
  const bool is_mean =
      flags.pooling.empty() ? of_model() == formats::PoolingMode::kMean : flags.pooling == "mean";
  return {is_mean ? engine::Pooling::Kind::kMean : engine::Pooling::Kind::kLast};
}

server::RerankOptions rerank_options(const ServeFlags& flags, const RunningModel& model) {
  server::RerankOptions options{.tokens = flags.rerank_tokens, .has_head = model.has_head};
  if (!flags.rerank_template.empty())
    options.chat_template =
        parse_template_flag("--rerank-template", flags.rerank_template, *model.tokenizer);
  return options;
}

// What can be found wrong before a weight is read.
void prepare(ServeFlags& flags, server::http::UnixPath& unix_path) {
  // CLI11 takes a variable that is set and empty for one that is not set.
  const char* variable = std::getenv(kKeyVariable);
  if (flags.api_keys.empty() && variable != nullptr) server::check_api_key(variable, kKeyVariable);
  flags.server.api_keys = collect_api_keys(flags);
  flags.server.allowed_origins = server::parse_allowed_origins(flags.allowed_origins);
  check_priorities(flags);
  flags.model.adapters = parse_adapters(flags.model.lora);
  (void)parser_choice(flags);
  flags.server.http.ping_interval =
      std::chrono::milliseconds(static_cast<int64_t>(flags.ping_seconds * 1000));
  flags.server.runner = flags.runner == "pooling"    ? server::Runner::kPooling
                        : flags.runner == "generate" ? server::Runner::kGenerate
                                                     : server::Runner::kAuto;
  flags.model.head_optional = flags.server.runner == server::Runner::kPooling;
  server::http::HttpOptions& http = flags.server.http;
  size_body(flags);
  open_listener(flags.listen, http, unix_path);
  if (flags.server.api_keys.empty() && http.unix_path.empty() && !server::is_loopback(http.host))
    spdlog::warn(
        "ANYBODY WHO REACHES {} MAY USE THIS SERVER: --host is not this machine alone, "
        "and there is no --api-key",
        printable(http.host));
  find_model_folder(flags.model);
  (void)pooling_defaults(flags, std::nullopt);
}

// A request's `model` names the model or one adapter.
void name_models(ServeFlags& flags, const RunningModel& model) {
  server::ServerOptions& options = flags.server;
  if (options.served_model_names.empty()) options.served_model_names = {model.name};
  options.fingerprint = model.fingerprint;
  options.max_adapters = flags.model.lora.max_loras;
  for (const RunningAdapter& adapter : model.adapters) {
    if (std::ranges::find(options.served_model_names, adapter.name) !=
        options.served_model_names.end())
      throw LoadError("--lora-modules: " + printable(adapter.name) +
                      " is the model's own name; give the adapter another one");
    options.adapters.push_back({adapter.name, adapter.path, adapter.fingerprint});
  }
}

// The server listens before it has an engine, so it is made first; it must not outlive its work.
struct StoppedFirst {
  server::Server& server;
  ~StoppedFirst() { server.stop(std::chrono::milliseconds(0)); }
};

int serve(ServeFlags flags) {
  std::signal(SIGPIPE, SIG_IGN);
  // Tools that turn over logs send these to whatever runs; by themselves they end a process.
  for (const int signal : {SIGUSR1, SIGUSR2}) std::signal(signal, SIG_IGN);
  give_back_memory_when_freed();
  server::Log log(STDERR_FILENO);
  server::http::UnixPath unix_path;
  Signals signals([&log, &unix_path](const char* reason) {
    spdlog::warn("{}", reason);
    unix_path.remove();
    log.flush(kLastWordsTime);
  });
  prepare(flags, unix_path);
  server::Server server(flags.server.http);
  const uint16_t port = server.start();
  RunningModel model = start_engine(flags.model);
  name_models(flags, model);
  const auto client = server::make_engine_client(*model.engine);
  const StoppedFirst stopped_first{server};
  server.open(*client,
              {.tokenizer = model.tokenizer,
               .chat_template = model.chat_template,
               .grammars = model.grammars,
               .eos_token_ids = model.eos_token_ids,
               .defaults = sampling_defaults(model.generation_config),
               .parsers = parser_choice(flags),
               .pooling = pooling_defaults(flags, model.pooling),
               .rerank = rerank_options(flags, model)},
              flags.server);
  log.print(invitation(flags.server.http, port, flags.server.root_path,
                       flags.server.served_model_names.front()));
  const ExitStatus status =
      serve_until_stopped(signals, server, *client, std::chrono::seconds(flags.shutdown_timeout),
                          [&] { reload(flags, server); });
  model.engine->shutdown(std::chrono::seconds(0));
  if (model.profile) bench::print_profile(stderr, model.profile->take());
  spdlog::info("stopped");
  return status;
}

void add_key_flags(CLI::App& command, ServeFlags& flags) {
  server::ServerOptions& options = flags.server;
  command
      .add_option("--api-key", flags.api_keys,
                  "Keys, one of which every request but /health and the page must bring")
      ->allow_extra_args(false)  // one a flag: the next word may be the model
      ->envname(kKeyVariable);
  command
      .add_option("--api-key-file", flags.api_key_files,
                  "File with one key a line, # for comments; read again at SIGHUP")
      ->allow_extra_args(false)
      ->type_name("FILE");
  command
      .add_option("--allowed-origins", flags.allowed_origins,
                  "Origins whose web pages may use the server and read its answers (CORS): "
                  "https://chat.example, or * for all; no page of another origin may otherwise")
      ->allow_extra_args(false)  // several times, or a JSON list as in vLLM
      ->type_name("ORIGIN");
  command.add_flag("--share-prefix-cache", options.share_prefix_cache,
                   "Let API keys reuse each other's cached prompts. A key can then find out what "
                   "another one sent");
  command
      .add_option("--max-concurrent-requests-per-key", options.client_limits.max_requests,
                  "Most requests of one API key at work at a time (without several keys: of one "
                  "address); more get a 429; 0: no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31))
      ->capture_default_str();
  command
      .add_option("--max-generations-per-key", options.client_limits.max_generations,
                  "The same for generations (prompts times `n`); 0: no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 31))
      ->capture_default_str();
  command
      .add_option(
          "--min-priority", options.limits.min_priority,
          "Most urgent `priority` that a request may send; lower ones get a 400, and requests "
          "that send none count as 0, or as this if it is above 0. Needs "
          "--scheduling-policy priority")
      ->default_str("any");
}

void add_server_flags(CLI::App& command, ServeFlags& flags) {
  server::ServerOptions& options = flags.server;
  add_listen_flags(command, flags.listen, options.http);
  command
      .add_option("--served-model-name", options.served_model_names,
                  "Names to answer to, also separated by commas; default: the folder's. The first "
                  "is the one in answers")
      ->delimiter(',')
      ->check(not_empty());
  command.add_flag("--no-page{false}", options.page, "No chat page at GET /");
  command
      .add_option("--root-path", options.root_path, "In front of every path, for a proxy: /quire")
      ->check(path_prefix());
  command
      .add_option("--shutdown-timeout", flags.shutdown_timeout,
                  "Seconds that running requests get after SIGTERM; then they are aborted")
      ->check(CLI::Range(0, 86400))
      ->capture_default_str();
  command
      .add_option("--max-logprobs", options.limits.max_logprobs,
                  "Most logprobs a request may ask for")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command.add_option(
      "--max-body-size", flags.max_body,
      "Largest request body (32MiB, or what --max-buffered-bytes leaves one client)");
  command.add_option(
      "--max-buffered-bytes", flags.max_buffered,
      "Most memory for bodies, documents, prompts, answers and grammars of all requests "
      "(512MiB); one API key (without several keys: one address) gets less than half");
  command.add_option("--http-threads", options.http.io_threads, "Threads for sockets")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command.add_flag("--trust-request-chat-template", options.trust_request_chat_template,
                   "Let requests bring their own chat_template");
  command.add_flag("--keep-billing-header", options.keep_billing_header,
                   "Show the model the block \"x-anthropic-billing-header: ..\" of Claude Code's "
                   "system prompt, too; it differs with every request, so no prefix is cached");
  command.add_option("--tool-call-parser", flags.tool_call_parser,
                     "Dialect of the model's tool calls (parse-output --list), or none; default: "
                     "what its chat template shows");
  command.add_option("--reasoning-parser", flags.reasoning_parser,
                     "Dialect of the model's reasoning, or none; default: as above");
  command
      .add_option("--structured-output-whitespace", flags.model.json_whitespace,
                  "Between the parts of JSON under a schema: bounded (a blank, or a line break and "
                  "up to 20 blanks) or flexible (any amount)")
      ->check(CLI::IsMember({"bounded", "flexible"}))
      ->capture_default_str();
  command
      .add_option("--sse-ping-interval", flags.ping_seconds,
                  "Seconds after which a silent stream gets a comment, so that nobody takes it for "
                  "dead; 0: never")
      ->check(CLI::Range(0.0, 86400.0))
      ->check(not_nan())
      ->capture_default_str();
}

void add_log_flags(CLI::App& command, server::ServerOptions& options) {
  command
      .add_option("--disable-access-log-for-endpoints", options.silent_paths,
                  "Paths without lines in the access log, separated by commas: /health,/metrics")
      ->delimiter(',')
      ->check(path_of_url())
      ->allow_extra_args(false);
  command.add_flag("--disable-cache-doctor{false}", options.cache_doctor,
                   "Do not look for what keeps a client's prompts from being found in the prefix "
                   "cache; else it is logged once, with a few words of them");
  command.add_flag("--disable-access-log{false}", options.access_log, "No log line per request");
}

void add_pooling_flags(CLI::App& command, ServeFlags& flags) {
  command
      .add_option("--runner", flags.runner,
                  "What the server does: auto (all), generate, or pooling (embeddings and scores)")
      ->check(CLI::IsMember({"auto", "generate", "pooling"}))
      ->capture_default_str();
  command
      .add_option("--pooling", flags.pooling,
                  "Embeddings are the last token's state or the mean of all; default: what the "
                  "model's 1_Pooling/config.json or GGUF file says, else last")
      ->transform(CLI::IsMember({"last", "mean"}, CLI::ignore_case));
  command
      .add_option(
          "--rerank-template", flags.rerank_template,
          "Jinja template with query, document and instruction, instead of Qwen3-Reranker's; "
          "as in vLLM, the tokenizer's special tokens go around it")
      ->type_name("FILE|TEXT");
  command
      .add_option("--rerank-tokens", flags.rerank_tokens,
                  "The two tokens that say no and yes (no,yes)")
      ->delimiter(',')
      ->expected(2)
      ->type_name("NO,YES");
}

}  // namespace

void add_serve(CLI::App& app, int& status) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command =
      app.add_subcommand("serve", "Serve a model through OpenAI's and Anthropic's APIs");
  add_config_flag(*command);
  add_model_flags(*command, flags->model);
  add_queue_flags(*command, flags->model);
  add_adapter_flags(*command, flags->model.lora);
  add_profile_flag(*command, flags->model.profile);
  add_key_flags(*command, *flags);
  add_server_flags(*command, *flags);
  add_log_flags(*command, flags->server);
  add_pooling_flags(*command, *flags);
  group_flags(*command);
  command->callback([flags, &status] { status = serve(*flags); });
}

}  // namespace quire::cli
