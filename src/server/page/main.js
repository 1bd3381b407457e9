// The page: which conversation is open, what is being answered, and what the buttons do.
import { by, element } from "./dom.js";
import { settings, chats, saveSettings, saveChat, newChat, removeChat, followOtherTabs } from "./store.js";
import { models, hasThinkingSwitch, stream } from "./api.js";
import { messageNode, answerMessage, updateAnswer } from "./messages.js";

const FIELDS = ["key", "system", "temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "tools"];
const RETRY_MS = 3000;

let current = chats[0] || newChat();
let running = null; // {chat, message, abort, node} of the answer that is being made

function say(text) {
  by("state").textContent = text;
}

function keep(chat) {
  if (!saveChat(chat)) say("This browser keeps no more: export, then delete conversations.");
}

const actions = {
  busy: () => running !== null,
  redraw: () => draw(),
  regenerate(message) {
    if (running) return;
    current.messages.splice(current.messages.indexOf(message));
    answer();
  },
  resend(message, text) {
    if (running) return;
    current.messages.splice(current.messages.indexOf(message), Infinity, { role: "user", content: text });
    answer();
  },
  giveResult(call, text) {
    if (running) return;
    current.messages.push({ role: "tool", callId: call.id, content: text });
    const asked = current.messages.flatMap((message) => message.calls || []);
    const open = asked.some((one) => !current.messages.some((message) => message.callId === one.id));
    keep(current);
    if (open) draw();
    else answer();
  },
};

function titleOf(chat) {
  return chat.title || "New chat";
}

function drawList() {
  by("list").replaceChildren(...chats.map((chat) => element("li", { class: chat === current && "current" },
    element("button", { type: "button", class: "open", "aria-current": chat === current && "true", click: () => open(chat) },
      titleOf(chat)),
    element("button", { type: "button", class: "drop", "aria-label": "Delete " + titleOf(chat), click: () => drop(chat) }, "\u00d7"))));
}

function nodeFor(message) {
  if (!running || running.message !== message) return messageNode(current, message, actions);
  running.node = answerMessage(current, message, actions, true);
  return running.node;
}

function draw() {
  const log = by("log");
  if (current.messages.length) {
    log.replaceChildren(...current.messages.map(nodeFor));
  } else {
    log.replaceChildren(element("div", { class: "welcome" }, element("h1", null, "What is on your mind?"),
      "Conversations stay in this browser."));
  }
  log.scrollTop = log.scrollHeight;
  drawList();
  by("send").hidden = running !== null;
  by("stop").hidden = running === null;
}

function open(chat) {
  if (running) running.abort.abort();
  current = chat;
  showMenu(false);
  draw();
  by("input").focus();
}

function drop(chat) {
  if (!confirm("Delete \u201c" + titleOf(chat) + "\u201d?")) return;
  if (running && running.chat === chat) running.abort.abort();
  removeChat(chat);
  if (chat === current) current = chats[0] || newChat();
  draw();
}

// A conversation that another tab has changed or deleted, or null: its settings.
function takeOver(chat, isThere) {
  if (chat === null) {
    theme();
    watchServer();
  } else if (chat === current && !isThere) {
    current = chats[0] || newChat();
  }
  if (chat !== null && (chat === current || !isThere)) draw();
  else drawList();
}

// Asks for an answer to the open conversation and shows it as it comes.
async function answer() {
  const chat = current;
  const message = { role: "assistant", content: "" };
  chat.messages.push(message);
  const job = { chat, message, abort: new AbortController(), node: null };
  running = job;
  keep(chat);
  draw();
  const log = by("log");
  let asked = false;
  const changed = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      if (running !== job || current !== chat) return;
      const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
      updateAnswer(job.node, message, true);
      if (follows) log.scrollTop = log.scrollHeight;
    });
  };
  try {
    const thinking = by("thinking").hidden ? "" : by("thinking").value;
    await stream(chat, by("model").value, thinking, message, job.abort.signal, changed);
    say("");
  } catch (error) {
    if (error.name === "AbortError") {
      message.finish = "stopped";
    } else {
      message.failed = error.message;
      if (error.status === 0) watchServer();
    }
  }
  if (running === job) running = null;
  if (chats.includes(chat)) keep(chat);
  draw();
}

function send() {
  const text = by("input").value.trim();
  if (!text || running) return;
  by("input").value = "";
  fit();
  if (!current.title) current.title = text.slice(0, 60);
  current.messages.push({ role: "user", content: text });
  answer();
}

function fit() {
  const input = by("input");
  input.style.height = "auto";
  input.style.height = input.scrollHeight + "px";
}

let watching = false;

// Fills the list of models; a server that is away is asked again until it is back.
async function watchServer() {
  if (watching) return;
  watching = true;
  for (;;) {
    try {
      const served = await models();
      const chosen = by("model").value || settings.model;
      by("model").replaceChildren(...served.map((model) => element("option", { value: model.id }, model.id)));
      if (served.some((model) => model.id === chosen)) by("model").value = chosen;
      by("thinking").hidden = !(await hasThinkingSwitch().catch(() => false));
      by("thinking").value = settings.thinking || "";
      say("");
      break;
    } catch (error) {
      say(error.message);
      if (error.status) break;
      await new Promise((resolve) => { setTimeout(resolve, RETRY_MS); });
    }
  }
  watching = false;
}

function showMenu(shown) {
  by("side").classList.toggle("shown", shown);
  by("veil").hidden = !shown;
  by("menu").setAttribute("aria-expanded", String(shown));
}

function theme() {
  const wanted = settings.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  document.documentElement.dataset.theme = wanted;
  return wanted;
}

function openSettings() {
  for (const name of FIELDS) by(name).value = settings[name] === undefined ? "" : settings[name];
  by("keep_key").checked = Boolean(settings.keep_key);
  by("settings-error").textContent = "";
  by("settings").showModal();
}

function closeSettings(event) {
  const tools = by("tools").value.trim();
  try {
    if (tools && !Array.isArray(JSON.parse(tools))) throw new Error("it is no list");
  } catch (error) {
    event.preventDefault();
    by("settings-error").textContent = "Tools: " + error.message;
    return;
  }
  takeSettings();
}

function takeSettings() {
  for (const name of FIELDS) settings[name] = by(name).value.trim();
  settings.keep_key = by("keep_key").checked;
  saveSettings();
  watchServer();
}

function exportChats() {
  const file = new Blob([JSON.stringify(chats, null, 2)], { type: "application/json" });
  const link = element("a", { href: URL.createObjectURL(file), download: "quire-chats.json" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

by("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
by("input").addEventListener("input", fit);
by("input").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || by("settings").open) return;
  if (by("side").classList.contains("shown")) showMenu(false);
  else if (running) running.abort.abort();
});
by("stop").addEventListener("click", () => { if (running) running.abort.abort(); by("input").focus(); });
by("new").addEventListener("click", () => open(chats.find((chat) => !chat.messages.length) || newChat()));
by("export").addEventListener("click", exportChats);
by("theme").addEventListener("click", () => {
  settings.theme = theme() === "dark" ? "light" : "dark";
  saveSettings();
  theme();
});
for (const name of ["model", "thinking"])
  by(name).addEventListener("change", () => { settings[name] = by(name).value; saveSettings(); });
by("menu").addEventListener("click", () => showMenu(!by("side").classList.contains("shown")));
by("veil").addEventListener("click", () => showMenu(false));
by("open-settings").addEventListener("click", openSettings);
by("close-settings").addEventListener("click", closeSettings);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme);
// What an answer has come to is not lost with the page.
addEventListener("pagehide", () => {
  if (!running) return;
  running.message.finish = "stopped";
  keep(running.chat);
});
followOtherTabs((chat) => running !== null && running.chat === chat, takeOver);

theme();
draw();
watchServer();
by("input").focus();
