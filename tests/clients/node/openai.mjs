// The openai package for JavaScript. Prints a line of JSON for each call: {"call", "error"}.
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { assert, report } from "./report.mjs";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "What is 123 + 456?" }];
const common = { model, messages, temperature: 0, max_tokens: 200 };
const object = "Make a JSON object with a = 123 and b = 456.";
const Sum = z.object({ a: z.int(), b: z.int() });
const parameters = {
  type: "object", properties: { a: { type: "integer" }, b: { type: "integer" } },
  required: ["a", "b"], additionalProperties: false,
};

await report("chat", async () => {
  const answer = await client.chat.completions.create(common);
  assert(answer.choices[0].message.content.includes("579"));
});

await report("chat_stream", async () => {
  const stream = client.chat.completions.stream(common);
  assert((await stream.finalContent()).includes("579"));
});

await report("parse", async () => {
  const answer = await client.chat.completions.parse({
    ...common, messages: [{ role: "user", content: object }], response_format: zodResponseFormat(Sum, "sum"),
  });
  assert(answer.choices[0].message.parsed.b === 456, answer.choices[0].message.content);
});

// The function runs, its result goes back, and the model's next turn ends the loop.
await report("runTools", async () => {
  const seen = [];
  const tool = {
    type: "function",
    function: { name: "add", parameters, parse: JSON.parse, function: (args) => { seen.push(args); return String(args.a + args.b); } },
  };
  const runner = client.chat.completions.runTools({ ...common, tools: [tool] }, { maxChatCompletions: 3 });
  const text = await runner.finalContent();
  assert(JSON.stringify(seen) === '[{"a":123,"b":456}]', JSON.stringify(seen));
  assert(text.includes("579"), text);
  assert(runner.messages.map((message) => message.role).join(" ") === "user assistant tool assistant");
});

await report("responses", async () => {
  const answer = await client.responses.create({ model, input: messages[0].content, temperature: 0 });
  assert(answer.output_text.includes("579"));
});

await report("responses_stream", async () => {
  const stream = client.responses.stream({ model, input: messages[0].content, temperature: 0 });
  const types = [];
  for await (const event of stream) types.push(event.type);
  assert(types[0] === "response.created" && types.at(-1) === "response.completed", types.join(" "));
  assert((await stream.finalResponse()).output_text.includes("579"));
});

await report("responses_tools", async () => {
  const tools = [{ type: "function", name: "add", parameters, strict: true }];
  const answer = await client.responses.create({ model, input: messages[0].content, tools, tool_choice: "required", temperature: 0 });
  const call = answer.output.find((item) => item.type === "function_call");
  assert(JSON.parse(call.arguments).a === 123, call.arguments);
});

await report("responses_parse", async () => {
  const answer = await client.responses.parse({
    model, input: object, temperature: 0, text: { format: zodTextFormat(Sum, "sum") },
  });
  assert(answer.output_parsed.a === 123 && answer.output_parsed.b === 456, answer.output_text);
});

await report("embeddings", async () => {
  const answer = await client.embeddings.create({ model, input: ["a fig", "a pear"] });
  assert(answer.data.length === 2 && answer.data[0].embedding.length > 0);
});

await report("errors", async () => {
  const error = await client.chat.completions.create({ ...common, temperature: -1 }).catch((caught) => caught);
  assert(error instanceof OpenAI.BadRequestError && error.param === "temperature", String(error));
});
