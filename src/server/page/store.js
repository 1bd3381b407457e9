// Conversations and settings, kept in this browser.
const CHATS = "quire.chats", SETTINGS = "quire.settings";

function read(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) || otherwise;
  } catch {
    return otherwise;
  }
}

export const settings = read(SETTINGS, {});
export const chats = read(CHATS, []);

export function saveSettings() {
  return write(SETTINGS, settings);
}

// False: the browser keeps no more, or nothing at all.
export function saveChats() {
  return write(CHATS, chats);
}

function write(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export function newChat() {
  const chat = { id: Date.now().toString(36) + Math.random().toString(36).slice(2, 8), title: "", messages: [] };
  chats.unshift(chat);
  return chat;
}

export function removeChat(chat) {
  chats.splice(chats.indexOf(chat), 1);
}
