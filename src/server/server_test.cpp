// The whole server over real sockets, with a scripted engine: what it answers.
#include "server/test_server.h"

namespace quire::server {
namespace {

TEST_F(ServerTest, AnswersCompletions) {
  start();
  const auto response = complete(R"("max_tokens": 1000000)");
  EXPECT_EQ(response.status, 400);  // more than the context: said, not silently cut
  const auto ok = complete(R"("max_tokens": 7)");
  ASSERT_EQ(ok.status, 200) << ok.body;
  const json::value body = ok.json();
  EXPECT_EQ(body.at("object"), "text_completion");
  EXPECT_EQ(body.at("model"), "tiny");
  EXPECT_TRUE(body.at("system_fingerprint").is_null());  // this server has none
  EXPECT_TRUE(body.at("id").as_string().starts_with("cmpl-"));
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "length");
  EXPECT_TRUE(body.at("choices").at(0).at("logprobs").is_null());
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 7);
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(),
            static_cast<int64_t>(encode("Hi").size()));
  EXPECT_EQ(body.at("usage").at("total_tokens").as_int64(),
            7 + static_cast<int64_t>(encode("Hi").size()));
  EXPECT_EQ(body.at("usage").at("prompt_tokens_details").at("cached_tokens"), 1);
  EXPECT_TRUE(kStory.starts_with(text_of(ok).substr(0, 4)));
}

TEST_F(ServerTest, StreamsTheSameTextAsItCollects) {
  start();
  const char* cases[] = {
      R"("max_tokens": 60)",
      R"("max_tokens": 60, "stop": "STOP")",
      R"("max_tokens": 60, "stop": ["time, ü", "zzz"])",
      R"("max_tokens": 60, "stop": "🙂", "include_stop_str_in_output": true)",
      R"("max_tokens": 9, "n": 3)",
      R"("max_tokens": 9, "echo": true)",
      R"("max_tokens": 24, "logprobs": 2)",
  };
  for (const std::string fields : cases) {
    SCOPED_TRACE(fields);
    const auto whole = complete(fields);
    const auto stream = complete(fields + R"(, "stream": true)");
    ASSERT_EQ(whole.status, 200) << whole.body;
    ASSERT_EQ(stream.status, 200) << stream.body;
    EXPECT_TRUE(stream.ends_with_done());
    EXPECT_TRUE(stream.headers.at("content-type").starts_with("text/event-stream"));
    const auto choices = whole.json().at("choices").as_array();
    for (size_t i = 0; i < choices.size(); ++i) {
      EXPECT_EQ(streamed_text(stream, static_cast<int64_t>(i)), text_of(whole, i));
      // The chat endpoint makes the same texts of the same tokens.
      if (fields.find("echo") != std::string::npos || fields.find("logprobs") != std::string::npos)
        continue;
      const auto body = chat(fields).json();
      EXPECT_EQ(body.at("choices").at(i).at("message").at("content").as_string().c_str(),
                text_of(whole, i));
      EXPECT_EQ(streamed_text(chat(fields + R"(, "stream": true)"), static_cast<int64_t>(i)),
                text_of(whole, i));
    }
  }
}

TEST_F(ServerTest, StopStringsEndTheEngineRequestToo) {
  start();
  const auto response = complete(R"("max_tokens": 400, "stop": ["xyz", "upon"])");
  EXPECT_EQ(text_of(response), "Once ");
  EXPECT_EQ(response.json().at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(response.json().at("choices").at(0).at("stop_reason"), "upon");
  EXPECT_TRUE(engine_->wait_for([&] { return engine_->num_running() == 0; }));
  EXPECT_EQ(engine_->num_aborted(), 1u);
}

TEST_F(ServerTest, ReportsEosAndStopTokens) {
  start([](FakeEngine::Script& script, ServerOptions&) {
    script.tokens = encode("ab");
    script.tokens.push_back(315);
  });
  const auto eos = complete(R"("max_tokens": 100)").json();
  EXPECT_EQ(eos.at("choices").at(0).at("text"), "ab");
  EXPECT_EQ(eos.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_TRUE(eos.at("choices").at(0).at("stop_reason").is_null());
  EXPECT_EQ(eos.at("usage").at("completion_tokens"), 3);
  const int32_t b = encode("ab")[1];
  const auto token =
      complete(R"("max_tokens": 100, "stop_token_ids": [)" + std::to_string(b) + "]").json();
  EXPECT_EQ(token.at("choices").at(0).at("text"), "a");
  EXPECT_EQ(token.at("choices").at(0).at("stop_reason"), b);
  EXPECT_EQ(complete(R"("max_tokens": 7, "ignore_eos": true)")
                .json()
                .at("choices")
                .at(0)
                .at("finish_reason"),
            "length");
}

TEST_F(ServerTest, StreamsInTheFormOfOpenAI) {
  start([](auto&, ServerOptions& options) { options.fingerprint = "fp_x"; });
  const auto response =
      chat(R"("max_tokens": 5, "stream": true, "stream_options": {"include_usage": true})");
  const auto events = response.events();
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events[0].at("object"), "chat.completion.chunk");
  EXPECT_EQ(events[0].at("choices").at(0).at("delta").at("role"), "assistant");
  EXPECT_FALSE(events[1].at("choices").at(0).at("delta").as_object().contains("role"));
  const json::value& finish = events[events.size() - 2].at("choices").at(0);
  EXPECT_EQ(finish.at("finish_reason"), "length");
  EXPECT_TRUE(events.back().at("choices").as_array().empty());
  EXPECT_EQ(events.back().at("usage").at("completion_tokens"), 5);
  for (const auto& event : events) {
    EXPECT_EQ(event.at("id"), events[0].at("id"));
    EXPECT_EQ(event.at("system_fingerprint"), "fp_x");
  }
  // Without the option there is no usage, and with the other one it is everywhere.
  const auto plain = chat(R"("max_tokens": 5, "stream": true)").events();
  for (const auto& event : plain) EXPECT_FALSE(event.as_object().contains("usage"));
  const auto continuous =
      chat(R"("max_tokens": 5, "stream": true, "stream_options": {"include_usage": true,
              "continuous_usage_stats": true})")
          .events();
  for (const auto& event : continuous) EXPECT_TRUE(event.as_object().contains("usage"));
}

TEST_F(ServerTest, GivesLogprobsInBothForms) {
  start();
  const auto completion = complete(R"("max_tokens": 4, "logprobs": 2)").json();
  const json::value& logprobs = completion.at("choices").at(0).at("logprobs");
  EXPECT_EQ(logprobs.at("tokens").as_array().size(), 4u);
  EXPECT_EQ(logprobs.at("text_offset").at(0), 0);
  EXPECT_EQ(logprobs.at("token_logprobs").at(3), -0.5);
  EXPECT_EQ(logprobs.at("top_logprobs").at(0).as_object().size(), 2u);
  std::string joined;
  for (const auto& token : logprobs.at("tokens").as_array()) joined += token.as_string().c_str();
  EXPECT_EQ(joined, completion.at("choices").at(0).at("text").as_string().c_str());

  const auto whole = chat(R"("max_tokens": 4, "logprobs": true, "top_logprobs": 3)").json();
  const auto& content = whole.at("choices").at(0).at("logprobs").at("content").as_array();
  ASSERT_EQ(content.size(), 4u);
  EXPECT_EQ(content[0].at("top_logprobs").as_array().size(), 3u);
  EXPECT_EQ(content[0].at("top_logprobs").at(1).at("logprob"), -1.5);
  EXPECT_EQ(content[0].at("bytes").at(0), static_cast<int64_t>('O'));
  const auto none = chat(R"("max_tokens": 4, "logprobs": true)").json();
  EXPECT_TRUE(none.at("choices")
                  .at(0)
                  .at("logprobs")
                  .at("content")
                  .at(0)
                  .at("top_logprobs")
                  .as_array()
                  .empty());

  const auto ids = complete(R"("max_tokens": 1, "logprobs": 0, "return_tokens_as_token_ids": true,
                               "return_token_ids": true)")
                       .json();
  const int32_t first = encode(kStory)[0];
  EXPECT_EQ(ids.at("choices").at(0).at("logprobs").at("tokens").at(0).as_string().c_str(),
            "token_id:" + std::to_string(first));
  EXPECT_EQ(ids.at("choices").at(0).at("token_ids").at(0), first);
  EXPECT_EQ(ids.at("choices").at(0).at("prompt_token_ids").as_array().size(), encode("Hi").size());
}

TEST_F(ServerTest, ScoresPrompts) {
  start();
  // What evaluation harnesses send.
  const auto body = complete(R"("max_tokens": 0, "echo": true, "logprobs": 1)").json();
  const json::value& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("text"), "Hi");
  const auto& values = choice.at("logprobs").at("token_logprobs").as_array();
  ASSERT_EQ(values.size(), encode("Hi").size());
  EXPECT_TRUE(values[0].is_null());
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 0);
  const auto extra = complete(R"("max_tokens": 1, "prompt_logprobs": 1)").json();
  const auto& prompt = extra.at("choices").at(0).at("prompt_logprobs").as_array();
  ASSERT_EQ(prompt.size(), encode("Hi").size());
  EXPECT_TRUE(prompt[0].is_null());
  EXPECT_EQ(prompt[1].as_object().begin()->value().at("rank"), 1);
}

TEST_F(ServerTest, AnswersSeveralPromptsInOrder) {
  start();
  const auto body =
      post("/v1/completions", R"({"prompt": ["a", "bc"], "n": 2, "max_tokens": 3, "echo": true,
                                   "seed": 7})")
          .json();
  const auto& choices = body.at("choices").as_array();
  ASSERT_EQ(choices.size(), 4u);
  EXPECT_TRUE(choices[1].at("text").as_string().starts_with("a"));
  EXPECT_TRUE(choices[2].at("text").as_string().starts_with("bc"));
  EXPECT_EQ(choices[3].at("index"), 3);
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 12);
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(),
            static_cast<int64_t>(encode("a").size() + encode("bc").size()));
  EXPECT_EQ(engine_->last_sampling().seed, 8u);  // 7 + the choice's number
}

TEST_F(ServerTest, PassesTokenIdPromptsThrough) {
  start();
  EXPECT_EQ(post("/v1/completions", R"({"prompt": [5, 6, 7], "max_tokens": 1})").status, 200);
  EXPECT_EQ(engine_->last_prompt(), (std::vector<int32_t>{5, 6, 7}));
  post("/v1/completions", R"({"prompt": [5, 6, 7], "max_tokens": 1, "truncate_prompt_tokens": 2})");
  EXPECT_EQ(engine_->last_prompt(), (std::vector<int32_t>{6, 7}));
  post("/v1/completions", R"({"prompt": [5, 6, 7], "max_tokens": 1, "truncate_prompt_tokens": 2,
                              "truncation_side": "right"})");
  EXPECT_EQ(engine_->last_prompt(), (std::vector<int32_t>{5, 6}));
}

TEST_F(ServerTest, RendersChats) {
  start();
  EXPECT_EQ(chat(R"("max_tokens": 1)").status, 200);
  EXPECT_EQ(engine_->last_prompt(),
            encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"));
  // max_tokens: what is left of the context.
  chat(R"("stop": "Once")");
  EXPECT_EQ(engine_->last_sampling().max_tokens,
            512 - static_cast<int64_t>(engine_->last_prompt().size()));
  const auto continued = post("/v1/chat/completions", R"({"max_tokens": 3, "echo": true,
      "continue_final_message": true, "add_generation_prompt": false,
      "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Sure: "}]})");
  ASSERT_EQ(continued.status, 200) << continued.body;
  const auto body = continued.json();
  EXPECT_TRUE(
      body.at("choices").at(0).at("message").at("content").as_string().starts_with("Sure: "));
}

TEST_F(ServerTest, WishesForThinkingGoToTemplatesThatReadThem) {
  const auto serve = [&](const char* source) {
    ModelText text = model_text();
    text.chat_template = text::ChatTemplate::parse(source, "").value();
    TearDown();
    start({}, std::move(text));
  };
  const auto rendered = [&](const std::string& fields) {
    const auto response = chat(R"("max_tokens": 1, )" + fields);
    if (response.status == 400)
      return "400 " + std::string(response.json().at("error").at("param").as_string());
    return model_text().tokenizer->decode(engine_->last_prompt(), false).value();
  };
  serve("{# thinking reasoning_effort #}{{ 'on' if enable_thinking else 'off' }}");
  EXPECT_EQ(rendered(R"("enable_thinking": true)"), "on");
  EXPECT_EQ(rendered(R"("think": false)"), "off");
  EXPECT_EQ(rendered(R"("reasoning_effort": "none")"), "off");
  EXPECT_EQ(rendered(R"("reasoning_effort": "low")"), "400 reasoning_effort");
  EXPECT_EQ(rendered(R"("chat_template_kwargs": {"enable_thinking": true})"), "on");
  EXPECT_EQ(rendered(R"("think": true, "chat_template_kwargs": {"enable_thinking": true})"), "on");
  EXPECT_EQ(rendered(R"("think": false, "chat_template_kwargs": {"enable_thinking": true})"),
            "400 think");
  serve("{% if thinking %}yes{% else %}no{% endif %}");
  EXPECT_EQ(rendered(R"("thinking": {"type": "enabled"})"), "yes");
  EXPECT_EQ(rendered(R"("reasoning": {"effort": "none"})"), "no");
  serve("{% macro m() %}{{ reasoning_effort }}{% endmacro %}{{ m() }}");
  EXPECT_EQ(rendered(R"("reasoning": {"effort": "high"})"), "high");
  EXPECT_EQ(rendered(R"("think": "low")"), "low");
  EXPECT_EQ(rendered(R"("enable_thinking": true)"), "400 enable_thinking");
  serve("plain");
  const std::string tools = R"("tools": [{"function": {"name": "f"}}])";
  EXPECT_EQ(rendered(tools), "400 tools");
  EXPECT_EQ(rendered(tools + R"(, "tool_choice": "none")"), "plain");
  EXPECT_EQ(rendered(R"("documents": [{"text": "x"}])"), "400 documents");
  EXPECT_EQ(rendered(R"("documents": [])"), "plain");
  for (const char* field : {"think", "enable_thinking"})
    EXPECT_EQ(rendered("\"" + std::string(field) + "\": true"), "400 " + std::string(field));
  EXPECT_EQ(rendered(R"("reasoning_effort": "none")"), "400 reasoning_effort");
}

TEST_F(ServerTest, HandsGrammarsToTheEngine) {
  start();
  EXPECT_EQ(complete(R"("max_tokens": 1)").status, 200);
  EXPECT_FALSE(engine_->last_had_grammar());
  EXPECT_EQ(complete(R"("max_tokens": 1, "guided_choice": ["Once", "x"])").status, 200);
  EXPECT_TRUE(engine_->last_had_grammar());
  const auto bad = complete(R"("guided_regex": "(((")");
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(bad.json().at("error").at("param"), "guided_regex");
  const auto schema = complete(
      R"("response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema":
         {"type": "nonsense"}}})");
  EXPECT_EQ(schema.status, 400);
  // Compiles, and fails at its first step.
  EXPECT_EQ(complete(R"("guided_json": {"$ref": "#"})").status, 400);
}

TEST_F(ServerTest, ListsModels) {
  start();
  TestClient client(port_);
  const auto models = client.get("/v1/models").json();
  EXPECT_EQ(models.at("data").at(0).at("id"), "tiny");
  EXPECT_EQ(models.at("data").at(1).at("id"), "alias");
  EXPECT_EQ(models.at("data").at(0).at("max_model_len"), 512);
  EXPECT_EQ(client.get("/v1/models/alias").status, 200);
  EXPECT_EQ(client.get("/v1/models/other").status, 404);
  EXPECT_FALSE(client.get("/version").json().at("version").as_string().empty());
}

TEST_F(ServerTest, TokenizesAndBack) {
  start();
  const auto ids = encode("Hi <|im_end|> ü");
  const auto body =
      post("/tokenize", R"({"prompt": "Hi <|im_end|> ü", "return_token_strs": true})");
  const auto tokens = body.json();
  EXPECT_EQ(tokens.at("count").to_number<size_t>(), ids.size());
  EXPECT_EQ(tokens.at("max_model_len"), 512);
  EXPECT_EQ(tokens.at("token_strs").as_array().size(), ids.size());
  const auto back = post("/detokenize", R"({"tokens": )" + dump_json(tokens.at("tokens")) + "}");
  EXPECT_EQ(back.json().at("prompt"), "Hi <|im_end|> ü");
  const auto chat = post("/tokenize", R"({"messages": [{"role": "user", "content": "Hi"}],
                                          "add_generation_prompt": false})")
                        .json();
  EXPECT_EQ(chat.at("count").to_number<size_t>(),
            encode("<|im_start|>user\nHi<|im_end|>\n").size());
  EXPECT_TRUE(chat.at("token_strs").is_null());
}

TEST_F(ServerTest, ShowsMetrics) {
  start();
  complete(R"("max_tokens": 5)");
  complete(R"("max_tokens": 50, "stop": "upon")");
  TestClient client(port_);
  client.get("/v1/completions");
  const char* lines[] = {
      "vllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 0",
      "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"tiny\"} 2",
      "vllm:e2e_request_latency_seconds_count{engine=\"0\",model_name=\"tiny\"} 2",
      "vllm:request_generation_tokens_sum{engine=\"0\",model_name=\"tiny\"}",
      "vllm:request_success_total{engine=\"0\",model_name=\"tiny\",finished_reason=\"length\"} 1",
      "quire:kernel_runs_total{engine=\"0\",model_name=\"tiny\",kernel=\"linear/amx\"} 3",
      "# TYPE vllm:kv_cache_usage_perc gauge",
      "# TYPE vllm:iteration_tokens_total histogram",
      "vllm:iteration_tokens_total_bucket{engine=\"0\",model_name=\"tiny\",le=\"1\"} 1",
      "vllm:iteration_tokens_total_bucket{engine=\"0\",model_name=\"tiny\",le=\"8\"} 3",
      "vllm:iteration_tokens_total_bucket{engine=\"0\",model_name=\"tiny\",le=\"16384\"} 4",
      "vllm:iteration_tokens_total_bucket{engine=\"0\",model_name=\"tiny\",le=\"+Inf\"} 5",
      "vllm:iteration_tokens_total_sum{engine=\"0\",model_name=\"tiny\"} 20020",
      "vllm:cache_config_info{engine=\"0\",model_name=\"tiny\",block_size=\"16\","
      "cache_dtype=\"auto\",enable_prefix_caching=\"True\",num_gpu_blocks=\"100\"} 1",
      "quire:kv_blocks_touched{engine=\"0\",model_name=\"tiny\"} 60",
      "quire:state_slots{engine=\"0\",model_name=\"tiny\"} 8",
      "quire:state_checkpoints{engine=\"0\",model_name=\"tiny\"} 32",
      "quire:state_checkpoint_hits_total{engine=\"0\",model_name=\"tiny\"} 3",
      "http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"200\"} 2",
      "http_requests_total{handler=\"/v1/completions\",method=\"other\",status=\"405\"} 1"};
  // A client has its answer before the server has counted it.
  for (const char* line : lines) {
    std::string text;
    EXPECT_TRUE(engine_->wait_for([&] {
      text = client.get("/metrics").body;
      return text.find(line) != std::string::npos;
    })) << line
        << "\n"
        << text;
  }
}

}  // namespace
}  // namespace quire::server
