// Elements are made here and nowhere from text: what a model writes becomes text nodes only.

// element("a", {class: "x", title: "y"}, child, "text", ...): attributes that are functions listen to that event.
export function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export function by(id) {
  return document.getElementById(id);
}

// Puts `text` on the clipboard; pages without TLS have no navigator.clipboard, but on localhost.
export async function copyText(text, button) {
  const said = button.textContent;
  try {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
    } else {
      const area = element("textarea", { class: "offscreen" });
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      if (!done) throw new Error("refused");
    }
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not copied";
  }
  setTimeout(() => { button.textContent = said; }, 1500);
}
