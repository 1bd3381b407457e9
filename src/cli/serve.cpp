#include <pthread.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <cstdio>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/profile_report.h"
#include "cli/start_engine.h"
#include "server/engine_adapter.h"
#include "server/server.h"

namespace quire::cli {
namespace {

struct ServeFlags {
  ModelFlags model;
  server::ServerOptions server;
  std::string max_body;
  int64_t shutdown_timeout = 0;
};

// What the model's generation_config.json recommends. Its do_sample is a switch of transformers; as
// in vLLM only the numbers count here.
server::SamplingDefaults sampling_defaults(const formats::GenerationConfig& config) {
  server::SamplingDefaults defaults;
  if (config.temperature) defaults.temperature = static_cast<float>(*config.temperature);
  if (config.top_p) defaults.top_p = static_cast<float>(*config.top_p);
  if (config.min_p) defaults.min_p = static_cast<float>(*config.min_p);
  if (config.repetition_penalty)
    defaults.repetition_penalty = static_cast<float>(*config.repetition_penalty);
  if (config.top_k) defaults.top_k = static_cast<int32_t>(std::max<int64_t>(0, *config.top_k));
  defaults.max_new_tokens = config.max_new_tokens;
  return defaults;
}

// SIGINT and SIGTERM are taken by this thread alone: blocked here, before other threads exist, then
// waited for.
class StopSignal {
 public:
  StopSignal() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  void wait() const {
    int signal = 0;
    sigwait(&set_, &signal);
  }

 private:
  sigset_t set_;
};

void print_invitation(const ServeFlags& flags, uint16_t port, const std::string& model) {
  const std::string& host = flags.server.http.host;
  const bool any = host == "0.0.0.0" || host == "::";
  const std::string shown = any                                   ? "127.0.0.1"
                            : host.find(':') == std::string::npos ? host
                                                                  : "[" + host + "]";
  const std::string url = "http://" + shown + ":" + std::to_string(port) + flags.server.root_path;
  std::fprintf(
      stderr,
      "listening on %s\n\n  curl %s/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"model\": \"%s\", \"messages\": [{\"role\": \"user\", \"content\": \"What is 123 "
      "+ 456?\"}]}'\n\n",
      url.c_str(), url.c_str(), model.c_str());
}

int serve(ServeFlags flags) {
  std::signal(SIGPIPE, SIG_IGN);
  const StopSignal stop;
  if (!flags.max_body.empty())
    flags.server.http.max_body_bytes =
        static_cast<size_t>(parse_size(flags.max_body, "--max-body-size"));
  RunningModel model = start_engine(flags.model);
  if (flags.server.served_model_names.empty()) flags.server.served_model_names = {model.name};
  const auto client = server::make_engine_client(*model.engine);
  server::Server server(*client,
                        {.tokenizer = model.tokenizer,
                         .chat_template = model.chat_template,
                         .grammars = model.grammars,
                         .eos_token_ids = model.eos_token_ids,
                         .defaults = sampling_defaults(model.checkpoint->generation_config())},
                        flags.server);
  const uint16_t port = server.start();
  print_invitation(flags, port, flags.server.served_model_names.front());
  stop.wait();
  spdlog::info("stopping: {} s for running requests", flags.shutdown_timeout);
  const std::chrono::seconds timeout(flags.shutdown_timeout);
  server.stop(timeout);
  model.engine->shutdown(std::chrono::seconds(0));
  if (model.profile) print_profile(stderr, model.profile->take());
  spdlog::info("stopped");
  return 0;
}

void add_server_flags(CLI::App& command, ServeFlags& flags) {
  server::ServerOptions& options = flags.server;
  command.add_option("--host", options.http.host, "Address to bind; 0.0.0.0 for all")
      ->capture_default_str();
  command.add_option("--port", options.http.port, "0: any free one")->capture_default_str();
  command.add_option("--served-model-name", options.served_model_names,
                     "Names to answer to; default: the folder's. The first is the one in answers");
  command
      .add_option("--api-key", options.api_keys,
                  "Keys, one of which every request but /health must bring")
      ->envname("VLLM_API_KEY");
  command.add_option("--root-path", options.root_path,
                     "In front of every path, for a proxy: /quire");
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
  command.add_option("--max-body-size", flags.max_body, "Largest request body (32MiB)");
  command.add_option("--http-threads", options.http.io_threads, "Threads for sockets")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command.add_flag("--trust-request-chat-template", options.trust_request_chat_template,
                   "Let requests bring their own chat_template");
  command.add_flag("--disable-access-log{false}", options.access_log, "No log line per request");
}

}  // namespace

void add_serve(CLI::App& app, int& status) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command = app.add_subcommand("serve", "Serve a model through the OpenAI API");
  add_model_flags(*command, flags->model);
  add_profile_flag(*command, flags->model.profile);
  add_server_flags(*command, *flags);
  command->callback([flags, &status] { status = serve(*flags); });
}

}  // namespace quire::cli
