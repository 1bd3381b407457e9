// The server's API, reached at the page's own address.
import { settings } from "./store.js";

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];

export class ApiFailure extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const headers = { "Content-Type": "application/json" };
  if (settings.key) headers.Authorization = "Bearer " + settings.key;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, credentials: "omit", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiFailure("The server cannot be reached.", 0);
  }
  if (answer.ok) return answer;
  let message = "The server answered " + answer.status;
  try {
    message = (await answer.json()).error.message;
  } catch { /* not the form of an API's error: a proxy's */ }
  if (answer.status === 401) message = "The server wants an API key: Settings has a field for it.";
  throw new ApiFailure(message, answer.status);
}

export async function models() {
  return (await (await ask("v1/models")).json()).data;
}

// Whether the chat template of the model has a switch for thinking.
export async function hasThinkingSwitch() {
  return /\benable_thinking\b/.test((await (await ask("tokenizer_info")).json()).chat_template || "");
}

// `answer` is the message that is about to be made; `thinking` is "on", "off" or "", which leaves it to the model.
function bodyOf(chat, model, thinking, answer) {
  const messages = chat.messages.filter((message) => !message.failed && message !== answer).map((message) => {
    const sent = { role: message.role, content: message.content || "" };
    if (message.calls && message.calls.length) sent.tool_calls = message.calls;
    if (message.callId) sent.tool_call_id = message.callId;
    return sent;
  });
  if (settings.system) messages.unshift({ role: "system", content: settings.system });
  // Counts come with every piece, so that an answer which is stopped has them, too.
  const body = { model, messages, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } };
  if (thinking) body.enable_thinking = thinking === "on";
  for (const name of NUMBERS) if (settings[name] !== undefined && settings[name] !== "") body[name] = Number(settings[name]);
  if (settings.tools) body.tools = JSON.parse(settings.tools);
  return body;
}

// Calls `take` with each event of the stream.
async function readEvents(answer, take) {
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new ApiFailure("The connection ended in the middle of the answer.", 0);
    held += decoder.decode(value, { stream: true });
    const parts = held.split("\n\n");
    held = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (data === "[DONE]") return;
      if (data) take(JSON.parse(data));
    }
  }
}

function addCalls(message, deltas) {
  message.calls = message.calls || [];
  for (const delta of deltas) {
    const call = message.calls[delta.index] || { id: "", type: "function", function: { name: "", arguments: "" } };
    message.calls[delta.index] = call;
    if (delta.id) call.id = delta.id;
    const made = delta.function || {};
    if (made.name) call.function.name = made.name;
    if (made.arguments) call.function.arguments += made.arguments;
  }
}

// Streams the answer to `chat` into `message` and calls `changed` whenever it has grown. message.took: seconds from the first piece to
// the latest.
export async function stream(chat, model, thinking, message, signal, changed) {
  let first = 0;
  const body = JSON.stringify(bodyOf(chat, model, thinking, message));
  const answer = await ask("v1/chat/completions", { method: "POST", body, signal });
  await readEvents(answer, (event) => {
    if (event.error) throw new ApiFailure(event.error.message, 500);
    if (event.usage) message.usage = event.usage;
    const choice = event.choices && event.choices[0];
    if (!choice) return;
    const delta = choice.delta || {};
    const thought = delta.reasoning_content || delta.reasoning || "";
    if (delta.content || thought || delta.tool_calls) {
      first = first || performance.now();
      message.took = (performance.now() - first) / 1000;
    }
    if (thought) message.reasoning = (message.reasoning || "") + thought;
    if (delta.content) message.content += delta.content;
    if (delta.tool_calls) addCalls(message, delta.tool_calls);
    if (choice.finish_reason) message.finish = choice.finish_reason;
    changed();
  });
}
