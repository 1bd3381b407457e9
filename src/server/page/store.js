// Conversations and settings, kept in this browser: each conversation by itself, so that tabs do not undo one another's. The API
// key stays in its tab, unless its owner wants the browser to keep it.
const CHAT = "quire.chat.", SETTINGS = "quire.settings", KEY = "quire.key";

function parse(text, otherwise) {
  try {
    return JSON.parse(text) || otherwise;
  } catch {
    return otherwise;
  }
}

// What a browser that keeps nothing throws, or one that is full.
function attempt(action, otherwise) {
  try {
    return action();
  } catch {
    return otherwise;
  }
}

const kept = (name) => attempt(() => localStorage.getItem(name), null);

function readSettings() {
  const settings = parse(kept(SETTINGS), {});
  if (!settings.keep_key) settings.key = attempt(() => sessionStorage.getItem(KEY), null) || "";
  return settings;
}

function readChats() {
  const names = attempt(() => Object.keys(localStorage), []).filter((name) => name.startsWith(CHAT));
  return names.map((name) => parse(kept(name), null)).filter((chat) => chat && Array.isArray(chat.messages)).sort(newestFirst);
}

const newestFirst = (one, other) => other.touched - one.touched;

export const settings = readSettings();
export const chats = readChats();

export function saveSettings() {
  const { key, ...others } = settings;
  attempt(() => sessionStorage.setItem(KEY, key || ""));
  return attempt(() => {
    localStorage.setItem(SETTINGS, JSON.stringify(settings.keep_key ? settings : others));
    return true;
  }, false);
}

// False: the browser keeps no more, or nothing at all.
export function saveChat(chat) {
  chat.touched = Date.now();
  return attempt(() => {
    localStorage.setItem(CHAT + chat.id, JSON.stringify(chat));
    return true;
  }, false);
}

export function newChat() {
  const id = Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
  const chat = { id, title: "", messages: [], touched: Date.now() };
  chats.unshift(chat);
  return chat;
}

export function removeChat(chat) {
  chats.splice(chats.indexOf(chat), 1);
  attempt(() => localStorage.removeItem(CHAT + chat.id));
}

// Takes over what other tabs save. `isOurs` says which conversations are being answered here: these stay as they are. `changed`
// is called with the conversation, null for settings, and whether it is still there.
export function followOtherTabs(isOurs, changed) {
  addEventListener("storage", (event) => {
    if (event.key === SETTINGS) {
      const key = settings.key;
      Object.assign(settings, { keep_key: false }, parse(event.newValue, {}));
      if (!settings.keep_key) settings.key = key;
      changed(null, true);
      return;
    }
    if (!event.key || !event.key.startsWith(CHAT)) return;
    const id = event.key.slice(CHAT.length);
    const ours = chats.find((chat) => chat.id === id);
    const theirs = parse(event.newValue, null);
    if (ours && isOurs(ours)) return;
    if (theirs && ours) Object.assign(ours, theirs);
    else if (theirs) chats.push(theirs);
    else if (ours) chats.splice(chats.indexOf(ours), 1);
    chats.sort(newestFirst);
    changed(ours || theirs, theirs !== null);
  });
}
