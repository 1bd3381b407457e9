#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "cli/flag_checks.h"
#include "cli/flag_groups.h"
#include "cli/foreign_flags.h"
#include "cli/usage.h"

namespace quire::cli {
namespace {

using Words = std::vector<std::string>;

Words split(std::string_view text) {
  std::istringstream stream{std::string(text)};
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// In the middle of a command line, so that a wrong number of values taken would show.
Words line_with(const Words& words) {
  Words out = {"serve", "--port", "0"};
  out.insert(out.end(), words.begin(), words.end());
  out.push_back("MODEL");
  return out;
}

// Of a command with an option and a flag.
Result<ScreenedArguments, std::string> screen(const Words& words) {
  CLI::App app;
  std::string text;
  bool flag = false;
  CLI::App* run = app.add_subcommand("run");
  run->add_option("--system", text);
  run->add_flag("--portable-bits", flag);
  run->add_option("model", text);
  return screen_foreign_flags(
      words, [&](const std::string& option) { return takes_value(app, words, option); });
}

TEST(ForeignFlags, AreNamedOnceAndSayWhy) {
  std::set<std::string> names;
  for (const ForeignFlag& flag : foreign_flags()) {
    EXPECT_FALSE(flag.reason.empty()) << flag.names;
    for (const std::string& name : split(flag.names)) {
      EXPECT_TRUE(name.starts_with('-')) << name;
      EXPECT_TRUE(names.insert(name).second) << name;
    }
  }
}

TEST(ForeignFlags, WhatChangesNothingIsNotSaidToBeRefused) {
  for (const ForeignFlag& flag : foreign_flags()) {
    if (flag.harmless.empty()) continue;
    for (const char* words : {"not supported", "llama.cpp's"})
      EXPECT_EQ(flag.reason.find(words), std::string::npos) << flag.names;
  }
}

TEST(ForeignFlags, NameTheFieldThatRequestsBring) {
  const std::pair<const char*, const char*> fields[] = {
      {"-j", "response_format"},           {"--json-schema", "response_format"},
      {"-jf", "response_format"},          {"-r", "stop"},
      {"--reverse-prompt", "stop"},        {"-sp", "skip_special_tokens"},
      {"--grammar-file", "grammar"},       {"--repeat-penalty", "repetition_penalty"},
      {"--repeat-last-n", "not supported"}};
  for (const auto& [name, words] : fields) {
    const auto screened = screen(line_with({name, "17"}));
    ASSERT_FALSE(screened.ok()) << name;
    EXPECT_NE(screened.error().find(words), std::string::npos) << screened.error();
  }
}

// Of `vllm serve --help`, beside those above that people type most.
TEST(ForeignFlags, HaveTheRareOnesToo) {
  std::set<std::string> names;
  for (const ForeignFlag& flag : foreign_flags()) {
    const Words some = split(flag.names);
    names.insert(some.begin(), some.end());
  }
  const Words rare = split(
      "--disable-frontend-multiprocessing --log-config-file "
      "--enable-tokenizer-info-endpoint --headless --data-parallel-start-rank "
      "--disable-uvicorn-access-log --convert --logprobs-mode --disable-sliding-window "
      "--disable-cascade-attn --skip-tokenizer-init --enable-prompt-embeds --config-format "
      "--hf-token --logits-processor-pattern --enable-sleep-mode --model-impl "
      "--model-loader-extra-config --ignore-patterns --use-tqdm-on-load "
      "--pt-load-map-location --guided-decoding-disable-fallback "
      "--guided-decoding-disable-any-whitespace --enable-eplb "
      "--max-parallel-loading-workers --ray-workers-use-nsight --worker-cls "
      "--prefix-caching-hash-algo --calculate-kv-scales --kv-sharing-fast-prefill "
      "--mamba-cache-dtype --media-io-kwargs --mm-processor-kwargs --mm-processor-cache-gb "
      "--disable-mm-preprocessor-cache --lora-extra-vocab-size "
      "--show-hidden-metrics-for-version --collect-detailed-traces --cuda-graph-sizes "
      "--num-lookahead-slots --scheduler-delay-factor --multi-step-stream-outputs "
      "--disable-chunked-mm-input --scheduler-cls --disable-hybrid-kv-cache-manager "
      "--kv-transfer-config --kv-events-config --additional-config "
      "--h11-max-incomplete-event-size --h11-max-header-count --structured-outputs-config "
      "--attention-backend --tokens-only --enable-offline-docs --decode-context-parallel-size "
      "-dcp --nnodes --node-rank --data-parallel-size-local --data-parallel-rank "
      "--data-parallel-backend --all2all-backend --distributed-timeout-seconds "
      "--data-parallel-address --master-addr --enable-dbo --optimization-level -O3 "
      "--safetensors-load-strategy --mamba-ssm-cache-dtype --mamba-block-size "
      "--mamba-cache-mode --kv-offloading-size --kv-cache-metrics --enable-log-deltas "
      "--log-error-stack --ssl-ciphers --skip-mm-profiling --language-model-only "
      "--interleave-mm-strings --mm-encoder-tp-mode --max-cudagraph-capture-size "
      "--override-attention-dtype --logits-processors --io-processor-plugin -dpn -dpr -dpl -dpa "
      "-dpp -dpb -asc --data-parallel-hybrid-lb --dbo-decode-token-threshold "
      "--dbo-prefill-token-threshold --disable-nccl-for-dp-synchronization --eplb-config "
      "--expert-placement-strategy --num-redundant-experts --eplb-window-size "
      "--eplb-step-interval --eplb-log-balancedness --worker-extension-cls --enable-mm-embeds "
      "--enable-multimodal-encoder-data-parallel --mm-processor-cache-type "
      "--mm-shm-cache-max-object-size-mb --mm-encoder-attn-backend --video-pruning-rate "
      "--default-mm-loras --cudagraph-capture-sizes --aggregate-engine-logging "
      "--enable-per-request-metrics --fingerprint-mode --fingerprint-value "
      "--reasoning-parser-plugin --attention-config --max-num-scheduled-tokens "
      "--guided-decoding-disable-additional-properties --grpc");
  for (const std::string& name : rare) EXPECT_TRUE(names.contains(name)) << name;
}

TEST(ForeignFlags, HarmlessOnesAreTakenOutWithANotice) {
  for (const ForeignFlag& flag : foreign_flags()) {
    for (const std::string& name : split(flag.names)) {
      for (const std::string& harmless : split(flag.harmless)) {
        const std::string value = harmless == "*" ? "17" : harmless;
        const bool has_value = flag.takes_value || !flag.values.empty();
        std::vector<Words> forms = {has_value ? Words{name, value} : Words{name}};
        if (has_value) forms.push_back({name + "=" + value});
        for (const Words& form : forms) {
          const auto screened = screen(line_with(form));
          ASSERT_TRUE(screened.ok()) << screened.error();
          EXPECT_EQ(screened->arguments, line_with({})) << name;
          ASSERT_EQ(screened->notices.size(), 1u);
          EXPECT_TRUE(screened->notices[0].starts_with(name)) << screened->notices[0];
          EXPECT_TRUE(screened->notices[0].ends_with(flag.reason)) << screened->notices[0];
        }
      }
    }
  }
}

TEST(ForeignFlags, OthersAreRefusedByName) {
  for (const ForeignFlag& flag : foreign_flags()) {
    if (flag.harmless == "*" || !flag.values.empty()) continue;
    for (const std::string& name : split(flag.names)) {
      const auto screened = screen(line_with({name, "17"}));
      ASSERT_FALSE(screened.ok()) << name;
      EXPECT_TRUE(screened.error().starts_with(name)) << screened.error();
      EXPECT_NE(screened.error().find(flag.reason), std::string::npos) << screened.error();
    }
  }
}

// Of `llama-server --help`, what people type most.
TEST(ForeignFlags, HaveLlamaServersToo) {
  const Words names = split(
      "-m -c -ngl -t -tb -b -ub -np -cb -fa -ctk -ctv -a -n -hf -s -md -ot -v -lv -fit -kvu "
      "--jinja --no-mmap --mlock --metrics --slots --props --no-webui --lora --mmproj --numa "
      "--cpu-moe --n-cpu-moe --swa-full --cache-reuse --reasoning-format --reasoning-budget "
      "--chat-template-file --threads-http --api-prefix --path --timeout --embeddings "
      "--reranking --ssl-key-file --ssl-cert-file --offline --split-mode --tensor-split "
      "--main-gpu --grammar-file --no-warmup --no-jinja --no-kv-unified --no-kv-offload "
      "--no-repack --ctx-checkpoints --chat-template-kwargs --reasoning --hf-file --no-ui "
      "--cors-origins --models-dir --prio --cpu-mask --rope-scale --mirostat --warmup --escape "
      "--no-escape -e --check-tensors --op-offload --no-op-offload --no-host --list-devices "
      "--no-log-prefix --no-log-timestamps --no-log-jsonl --cache-idle-slots "
      "--no-cache-idle-slots --cors-credentials --no-cors-credentials --models-autoload "
      "--no-models-autoload --reuse-port -bs -lcs -lcd --dry-sequence-breaker --adaptive-target "
      "--adaptive-decay --reasoning-preserve --no-reasoning-preserve --tags "
      "--mmap -dio --direct-io -ndio -dev --moe-cache-mib -ncffn --n-cpu-ffn --ui-config "
      "--webui-config-file --ui-mcp-proxy --no-webui-mcp-proxy --agent -no-ag --tools-runtime "
      "--skip-chat-parsing --prefill-assistant -sps --lora-init-without-apply "
      "--sleep-idle-seconds --log-prompts-dir --cache-list --completion-bash --spm-infill "
      "--kv-unified-per-slot --control-vector-layer-range --mtmd-batch-max-tokens --video-fps "
      "--spec-type --spec-default --spec-draft-n-max --spec-draft-n-min --spec-draft-p-min "
      "--spec-draft-model --spec-draft-hf --spec-ngram-mod-n-match --draft-p-min -hfd -ngld -devd "
      "-ctkd -ctvd -cmoed -ncmoed -otd -td -tbd --fim-qwen-7b-spec --gpt-oss-20b-default");
  for (const std::string& name : names) EXPECT_NE(find_foreign_flag(name), nullptr) << name;
}

// What asks for the opposite of what is done is refused, also as the other form of a switch.
TEST(ForeignFlags, PairsOfSwitchesAreJudgedApart) {
  for (const char* name : {"--no-warmup", "--no-escape", "--cache-idle-slots", "--log-timestamps",
                           "--no-cors-credentials", "--models-autoload", "--no-agent",
                           "--no-skip-chat-parsing", "--no-prefill-assistant"})
    EXPECT_TRUE(screen(line_with({name})).ok()) << name;
  for (const char* name : {"--warmup", "--escape", "--no-cache-idle-slots", "--no-log-timestamps",
                           "--cors-credentials", "--no-models-autoload", "--log-jsonl", "--agent",
                           "--skip-chat-parsing", "--prefill-assistant"})
    EXPECT_FALSE(screen(line_with({name})).ok()) << name;
}

// llama.cpp has had it as a switch, and with a value.
TEST(ForeignFlags, ASwitchMayHaveAValue) {
  for (const char* name : {"-fa", "--flash-attn", "--flash_attn"}) {
    const auto alone = screen(line_with({name}));
    ASSERT_TRUE(alone.ok()) << alone.error();
    EXPECT_EQ(alone->arguments, line_with({})) << name;  // MODEL is not its value
    EXPECT_TRUE(screen(line_with({name, "auto"})).ok());
    for (const Words& off :
         {Words{name, "off"}, Words{std::string(name) + "=off"}, Words{name, "0"}})
      EXPECT_FALSE(screen(line_with(off)).ok()) << name;
  }
  EXPECT_EQ(screen(line_with({"-fa", "off"})).error(),
            "-fa off: attention is always fused; accepted: on auto 1 true enabled");
  EXPECT_EQ(screen({"serve", "-fa"})->notices[0], "-fa changes nothing: attention is always fused");
}

TEST(ForeignFlags, ASwitchMayHaveNumbers) {
  const auto screened = screen(line_with({"--cudagraph-capture-sizes", "1", "2", "4"}));
  ASSERT_TRUE(screened.ok()) << screened.error();
  EXPECT_EQ(screened->arguments, line_with({}));
  EXPECT_TRUE(screened->notices[0].starts_with("--cudagraph-capture-sizes 1 2 4 changes nothing"));
}

TEST(ForeignFlags, LeavesEverythingElseAlone) {
  const Words own = {"serve", "MODEL", "--max-model-len", "4k", "--temperature", "-1", "-", ""};
  EXPECT_EQ(screen(own)->arguments, own);
  const Words behind = {"run", "MODEL", "--", "-m", "--quantization"};
  EXPECT_EQ(screen(behind)->arguments, behind);
  EXPECT_FALSE(screen({"serve", "--tensor_parallel_size", "2"}).ok());
  EXPECT_FALSE(screen({"serve", "--tensor-parallel-size"}).ok());
  EXPECT_EQ(screen({"run", "--portable_bits", "--system=a_b", "x_y"})->arguments,
            Words({"run", "--portable-bits", "--system=a_b", "x_y"}));
  EXPECT_EQ(screen({"run", "--system", "--a_b"})->arguments, Words({"run", "--system", "--a_b"}));
  EXPECT_TRUE(screen({"serve", "--swap-space"}).ok());
  EXPECT_EQ(screen({"run", "--system=", "M"})->arguments, Words({"run", "--system", "", "M"}));
  EXPECT_EQ(screen({"run", "--colour=", "--system=a="})->arguments,
            Words({"run", "--colour=", "--system=a="}));
}

TEST(ForeignFlags, SwitchesHaveAFormThatTurnsThemOff) {
  for (const char* name : {"--no-enforce-eager", "--no-trust-remote-code", "--no_enable_lora"}) {
    const auto screened = screen(line_with({name}));
    ASSERT_TRUE(screened.ok()) << screened.error();
    EXPECT_EQ(screened->arguments, line_with({})) << name;
    EXPECT_TRUE(screened->notices[0].starts_with(name)) << screened->notices[0];
  }
  // What would change something, takes a value or is Quire's own is no such form.
  for (const char* name : {"--no-swap-space", "--no-headless", "--no-enable-prefix-caching"})
    EXPECT_EQ(find_foreign_flag(name), nullptr) << name;
}

TEST(ForeignFlags, ValuesOfOptionsAreNone) {
  const Words value = {"run", "--system", "--mlock", "MODEL", "--system", "-m"};
  ASSERT_TRUE(screen(value).ok()) << screen(value).error();
  EXPECT_EQ(screen(value)->arguments, value);
  for (const Words& option :
       {Words{"run", "--portable-bits", "--mlock"}, Words{"run", "--system=x", "--mlock"},
        Words{"run", "MODEL", "--mlock"}, Words{"run", "--system", "x", "--mlock"}})
    EXPECT_FALSE(screen(option).ok());
}

TEST(NearestWord, FindsTyposOnly) {
  const Words commands = {"serve", "run", "bench", "quantize"};
  EXPECT_EQ(nearest_word("sevre", commands), "serve");
  EXPECT_EQ(nearest_word("server", commands), "serve");
  EXPECT_EQ(nearest_word("rnu", commands), "run");
  EXPECT_EQ(nearest_word("quantise", commands), "quantize");
  EXPECT_EQ(nearest_word("models/x", commands), "");
  EXPECT_EQ(nearest_word("ls", commands), "");
  EXPECT_EQ(nearest_word("", commands), "");
}

TEST(FlagChecks, RefuseWhatWouldPass) {
  CLI::App app;
  std::string host;
  double seconds = 0;
  app.add_option("--host", host)->check(not_empty());
  app.add_option("--seconds", seconds)->check(CLI::Range(0.0, 9.0))->check(not_nan());
  const auto parse = [&](Words words) {
    std::reverse(words.begin(), words.end());
    app.parse(words);
  };
  EXPECT_THROW(parse({"--host", ""}), CLI::ValidationError);
  EXPECT_THROW(parse({"--host="}), CLI::ParseError);
  for (const char* text : {"nan", "-nan", "NaN", "10", "x"})
    EXPECT_THROW(parse({"--seconds", text}), CLI::ParseError) << text;
  EXPECT_NO_THROW(parse({"--host", "::", "--seconds", "2.5"}));
  EXPECT_EQ(seconds, 2.5);
}

class UsageTest : public testing::Test {
 protected:
  UsageTest() {
    CLI::App* serve = app_.add_subcommand("serve");
    serve->add_option("--max-model-len", text_);
    serve->add_option("--api-key", texts_)->allow_extra_args(false);
    serve->add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", flag_);
    serve->add_option("model", text_);
    CLI::App* bench = app_.add_subcommand("bench");
    bench->add_subcommand("latency");
    bench->add_subcommand("throughput");
  }

  CLI::App app_;
  std::string text_;
  Words texts_;
  bool flag_ = false;
};

TEST_F(UsageTest, UnknownCommandsSuggestTheNearOne) {
  EXPECT_EQ(unknown_command(app_, {"sevre", "MODEL"}),
            "there is no command `sevre`; did you mean `serve`?");
  EXPECT_EQ(unknown_command(app_, {"bench", "latncy"}),
            "there is no command `latncy`; did you mean `latency`?");
  EXPECT_EQ(unknown_command(app_, {"models/x"}),
            "there is no command `models/x`; there are serve, bench");
  for (const Words& fine : {Words{}, Words{"--help"}, Words{"serve", "sevre"}, Words{"bench"},
                            Words{"bench", "latency", "x"}})
    EXPECT_EQ(unknown_command(app_, fine), "");
}

TEST_F(UsageTest, UnknownFlagsSuggestTheNearOne) {
  EXPECT_EQ(flag_suggestion(app_, {"serve", "M", "--max-modle-len", "5"}),
            "did you mean --max-model-len?");
  EXPECT_EQ(flag_suggestion(app_, {"serve", "--max_model_len=5"}), "did you mean --max-model-len?");
  EXPECT_EQ(flag_suggestion(app_, {"serve", "--no-enable-prefix-cachng"}),
            "did you mean --no-enable-prefix-caching?");
  EXPECT_EQ(flag_suggestion(app_, {"serve", "--colour"}), "");
  EXPECT_EQ(flag_suggestion(app_, {"serve", "--max-model-len", "5"}), "");
}

TEST_F(UsageTest, WhatIsLeftOverIsSaidInItsOrder) {
  Words words = {"serve", "M", "--colour", "red", "--enable-prefix-caching", "more\x1b"};
  std::reverse(words.begin(), words.end());
  EXPECT_THROW(app_.parse(words), CLI::ExtrasError);
  EXPECT_EQ(extras_text(app_), "not expected here: --colour red more\\x1b; see --help");
}

TEST_F(UsageTest, FlagsStandUnderTheirHeadings) {
  CLI::App* serve = app_.get_subcommand("serve");
  group_flags(*serve);
  EXPECT_EQ(serve->get_option("--max-model-len")->get_group(), "Model");
  EXPECT_EQ(serve->get_option("--api-key")->get_group(), "Access and limits");
  std::set<std::string> names;
  for (const FlagGroup& group : flag_groups())
    for (const std::string& name : split(group.flags))
      EXPECT_TRUE(names.insert(name).second) << name;
}

}  // namespace
}  // namespace quire::cli
