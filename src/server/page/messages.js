// How messages look. `actions` are what the page does when somebody presses a button.
import { element, copyText } from "./dom.js";
import { showMarkdown } from "./markdown.js";

const ENDS = { length: "cut: the limit of tokens was reached", stopped: "stopped" };

function numbers(message) {
  const parts = [];
  const usage = message.usage;
  if (usage) {
    if (message.took > 0 && usage.completion_tokens > 1)
      parts.push(((usage.completion_tokens - 1) / message.took).toFixed(1) + " tokens/s");
    parts.push(usage.completion_tokens + " tokens");
    const cached = (usage.prompt_tokens_details || {}).cached_tokens || 0;
    parts.push("prompt " + usage.prompt_tokens + (cached ? " (" + cached + " cached)" : ""));
  }
  if (ENDS[message.finish]) parts.push(ENDS[message.finish]);
  return parts.join(" \u00b7 ");
}

function button(label, act) {
  return element("button", { type: "button", click: act }, label);
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// The message's text in a field, to be sent again.
function edit(node, message, actions) {
  const area = element("textarea", { "aria-label": "Edit the message" });
  area.value = message.content;
  const send = () => { if (area.value.trim()) actions.resend(message, area.value.trim()); };
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") actions.redraw();
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
  });
  node.replaceChildren(area, element("div", { class: "foot" }, button("Send", send), button("Cancel", actions.redraw)));
  area.focus();
}

function userMessage(message, actions) {
  const node = element("article", { class: "message user", "aria-label": "You" });
  node.append(element("div", { class: "text" }, message.content), element("div", { class: "foot" },
    button("Edit", () => { if (!actions.busy()) edit(node, message, actions); })));
  return node;
}

function toolMessage(message) {
  return element("article", { class: "message tool", "aria-label": "Result of a tool" },
    element("details", { class: "call" }, element("summary", null, "Result"), element("pre", { class: "mono" }, message.content)));
}

function callNode(call, answered, actions) {
  const node = element("details", { class: "call", open: !answered },
    element("summary", null, "Calls ", element("code", null, call.function.name)),
    element("pre", { class: "mono" }, pretty(call.function.arguments)));
  if (answered) return node;
  const area = element("textarea", { rows: "2", "aria-label": "Result of " + call.function.name, placeholder: "Result of the call" });
  node.append(area, element("div", { class: "foot" }, button("Give result", () => actions.giveResult(call, area.value))));
  return node;
}

// Shows `message` in the node that answerMessage() made, as far as it has come.
export function updateAnswer(node, message, running) {
  const { text, thought, thoughtText, foot } = node.parts;
  thought.hidden = !message.reasoning;
  thoughtText.textContent = message.reasoning || "";
  thought.querySelector("summary").textContent = running && !message.content ? "Thinking" : "Thoughts";
  showMarkdown(text, message.content);
  text.classList.toggle("waiting", running);
  node.setAttribute("aria-busy", String(running));
  foot.hidden = running;
}

export function answerMessage(chat, message, actions, running) {
  const text = element("div", { class: "text" });
  const thoughtText = element("div");
  const thought = element("details", { class: "reasoning" }, element("summary"), thoughtText);
  const copy = button("Copy", () => copyText(message.content, copy));
  const foot = element("div", { class: "foot" }, element("span", { class: "stats" }, numbers(message)), copy,
    message === chat.messages.at(-1) && button("Regenerate", () => actions.regenerate(message)));
  const node = element("article", { class: "message assistant", "aria-label": "Answer" }, thought, text);
  for (const call of message.calls || []) {
    const answered = running || chat.messages.some((other) => other.callId === call.id);
    node.append(callNode(call, answered, actions));
  }
  if (message.failed) node.append(element("p", { class: "error", role: "alert" }, message.failed));
  node.append(foot);
  node.parts = { text, thought, thoughtText, foot };
  updateAnswer(node, message, running);
  return node;
}

export function messageNode(chat, message, actions) {
  if (message.role === "user") return userMessage(message, actions);
  if (message.role === "tool") return toolMessage(message);
  return answerMessage(chat, message, actions, false);
}
