// The Vercel AI SDK with its provider for OpenAI-compatible servers.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { assert, report } from "./report.mjs";

const [baseURL, model] = process.argv.slice(2);
const provider = createOpenAICompatible({ name: "quire", baseURL, apiKey: "none", supportsStructuredOutputs: true });
const common = { model: provider(model), prompt: "What is 123 + 456?", temperature: 0, maxOutputTokens: 200, maxRetries: 0 };
const add = tool({
  description: "Adds two numbers",
  inputSchema: z.object({ a: z.int(), b: z.int() }),
  execute: async ({ a, b }) => String(a + b),
});

await report("generateText", async () => {
  const { text, usage } = await generateText(common);
  assert(text.includes("579") && usage.outputTokens > 0, text);
});

await report("streamText", async () => {
  const { textStream } = streamText(common);
  let text = "";
  for await (const part of textStream) text += part;
  assert(text.includes("579"), text);
});

await report("tools", async () => {
  const { toolCalls, toolResults } = await generateText({ ...common, tools: { add }, toolChoice: "required" });
  assert(toolCalls[0].input.a === 123, JSON.stringify(toolCalls));
  assert(toolResults[0].output === "579");
});

await report("tools_stream", async () => {
  const result = streamText({ ...common, tools: { add }, toolChoice: { type: "tool", toolName: "add" } });
  for await (const part of result.fullStream) if (part.type === "error") throw part.error;
  assert((await result.toolCalls)[0].input.b === 456);
});

await report("steps", async () => {
  const get_weather = tool({
    description: "Get the weather for a city",
    inputSchema: z.object({ location: z.string() }),
    execute: async ({ location }) => ({ location, temperature: 7, condition: "rainy" }),
  });
  const prompt = "What is the weather in Paris?";
  const { steps, text } = await generateText({ ...common, prompt, tools: { get_weather }, stopWhen: stepCountIs(3) });
  assert(steps.length === 2 && steps[0].toolResults[0]?.output.location === "Paris", JSON.stringify(steps.map((step) => step.content)));
  assert(steps[0].finishReason === "tool-calls" && steps[1].finishReason === "stop" && text.includes("rainy"), text);
});

await report("generateObject", async () => {
  const prompt = "Make a JSON object with a = 123 and b = 456.";
  const { object } = await generateObject({ ...common, prompt, schema: z.object({ a: z.int(), b: z.int() }) });
  assert(object.a === 123 && object.b === 456, JSON.stringify(object));
});

await report("embedMany", async () => {
  const { embeddings } = await embedMany({ model: provider.textEmbeddingModel(model), values: ["a fig", "a pear"], maxRetries: 0 });
  assert(embeddings.length === 2);
});
