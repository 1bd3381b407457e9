// Markdown as language models write it, to elements. What it does not know stays text.
import { element, copyText } from "./dom.js";

const FENCE = /^\s{0,3}(```+|~~~+)\s*([\w+#.-]*)/;
const HEADING = /^(#{1,6})\s+(.*)$/;
const RULE = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const ROW = /^\s*\|.*\|\s*$/;
const ROW_RULE = /^\s*\|(\s*:?-+:?\s*\|)+\s*$/;

// The blocks of a text: {kind, lines or text, ...}. A fence that is not closed yet reaches to the end.
export function blocksOf(text) {
  const lines = text.split("\n");
  const blocks = [];
  const startsBlock = (line) => FENCE.test(line) || HEADING.test(line) || RULE.test(line) || ITEM.test(line) ||
    ROW.test(line) || /^\s*>/.test(line) || !line.trim();
  for (let i = 0; i < lines.length;) {
    const line = lines[i];
    const fence = FENCE.exec(line);
    if (!line.trim()) {
      i++;
    } else if (fence) {
      const body = [];
      for (i++; i < lines.length && !lines[i].trim().startsWith(fence[1]); i++) body.push(lines[i]);
      i++;
      blocks.push({ kind: "code", language: fence[2], text: body.join("\n") });
    } else if (HEADING.test(line)) {
      const [, marks, title] = HEADING.exec(line);
      blocks.push({ kind: "heading", level: Math.min(marks.length, 4), text: withoutMarks(title) });
      i++;
    } else if (RULE.test(line)) {
      blocks.push({ kind: "rule" });
      i++;
    } else if (/^\s*>/.test(line)) {
      const body = [];
      for (; i < lines.length && /^\s*>/.test(lines[i]); i++) body.push(lines[i].replace(/^\s*> ?/, ""));
      blocks.push({ kind: "quote", text: body.join("\n") });
    } else if (ROW.test(line) && ROW_RULE.test(lines[i + 1] || "")) {
      const rows = [];
      for (; i < lines.length && ROW.test(lines[i]); i++) if (!ROW_RULE.test(lines[i])) rows.push(lines[i]);
      blocks.push({ kind: "table", rows });
    } else if (ITEM.test(line)) {
      const body = [];
      for (; i < lines.length && (ITEM.test(lines[i]) || /^\s{2,}\S/.test(lines[i]) || continues(lines, i)); i++)
        body.push(lines[i]);
      blocks.push({ kind: "list", lines: body });
    } else {
      const body = [line];
      for (i++; i < lines.length && !startsBlock(lines[i]); i++) body.push(lines[i]);
      blocks.push({ kind: "paragraph", text: body.join("\n") });
    }
  }
  return blocks;
}

// A title without the marks that may stand behind it. No expression: one that looks for an end takes the square of a long line's time.
function withoutMarks(title) {
  const whole = title.trimEnd();
  let end = whole.length;
  while (end > 0 && whole[end - 1] === "#") end--;
  return end === 0 || !whole[end - 1].trim() ? whole.slice(0, end).trimEnd() : whole;  // "C#" has none
}

// Whether an empty line stands inside a list.
function continues(lines, i) {
  return !lines[i].trim() && i + 1 < lines.length && (ITEM.test(lines[i + 1]) || /^\s{2,}\S/.test(lines[i + 1]));
}

// Only these may be followed from an answer; everything else stays text.
export function safeLink(target) {
  return /^(https?:\/\/|mailto:)[^\s\u0000-\u001f]+$/i.test(target) ? target : null;
}

const INLINE = /(`+)([\s\S]*?[^`])\1(?!`)|\*\*(?=\S)([\s\S]*?\S)\*\*|\*(?=[^\s*])([^*]*?[^\s*])\*(?!\*)|~~(?=\S)([\s\S]*?\S)~~|\[([^[\]\n]*)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)|(https?:\/\/[^\s<>"')\]]*[^\s<>"')\].,;:!?])/;

// The nodes of one line or paragraph.
export function inline(text, depth = 0) {
  const nodes = [];
  while (text) {
    const found = depth < 6 ? INLINE.exec(text) : null;
    if (!found) break;
    const [whole, , code, strong, emphasis, struck, label, target, bare] = found;
    nodes.push(text.slice(0, found.index));
    text = text.slice(found.index + whole.length);
    const link = safeLink(bare || target || "");
    if (code !== undefined) nodes.push(element("code", null, code));
    else if (strong !== undefined) nodes.push(element("strong", null, ...inline(strong, depth + 1)));
    else if (emphasis !== undefined) nodes.push(element("em", null, ...inline(emphasis, depth + 1)));
    else if (struck !== undefined) nodes.push(element("s", null, ...inline(struck, depth + 1)));
    else if (link) nodes.push(element("a", { href: link, rel: "noopener noreferrer", target: "_blank" }, label || link));
    else nodes.push(whole);
  }
  nodes.push(text);
  return nodes.filter((node) => node !== "");
}

// What is deeper in quotes and lists stays text: a model may write a thousand levels, and each costs all that is inside.
const MOST_LEVELS = 12;

function listOf(lines, level) {
  const first = ITEM.exec(lines[0]);
  const depth = first[1].length;
  const ordered = /\d/.test(first[2]);
  const list = element(ordered ? "ol" : "ul", ordered ? { start: parseInt(first[2], 10) } : null);
  for (let i = 0; i < lines.length;) {
    const item = ITEM.exec(lines[i]);
    const inner = [];
    const own = item ? item[3] : lines[i].trim();
    for (i++; i < lines.length; i++) {
      const next = ITEM.exec(lines[i]);
      if (next && next[1].length <= depth) break;
      inner.push(lines[i].slice(Math.min(depth + 2, lines[i].length - lines[i].trimStart().length)));
    }
    list.append(element("li", null, ...inline(own), ...nodesOf(inner.join("\n"), level + 1)));
  }
  return list;
}

function cells(row) {
  return row.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
}

function codeBlock(block) {
  const copy = element("button", { type: "button", click: () => copyText(block.text, copy) }, "Copy");
  return element("div", { class: "code" },
    element("div", { class: "code-head" }, element("span", null, block.language || "text"), copy),
    element("pre", { tabindex: "0" }, element("code", null, block.text)));
}

function nodesOf(text, level) {
  if (level > MOST_LEVELS) return text.trim() ? [element("p", null, text)] : [];
  return blocksOf(text).map((block) => nodeOf(block, level));
}

function nodeOf(block, level) {
  switch (block.kind) {
    case "code": return codeBlock(block);
    case "heading": return element("h" + block.level, null, ...inline(block.text));
    case "rule": return element("hr");
    case "quote": return element("blockquote", null, ...nodesOf(block.text, level + 1));
    case "list": return listOf(block.lines, level);
    case "table": return element("div", { class: "table" }, element("table", null, ...block.rows.map((row, i) =>
      element("tr", null, ...cells(row).map((cell) => element(i ? "td" : "th", null, ...inline(cell)))))));
    default: return element("p", null, ...inline(block.text));
  }
}

// Shows `text` in `target`. Blocks that are as they were keep their nodes, so that a stream costs its last block only.
export function showMarkdown(target, text) {
  const blocks = blocksOf(text);
  const keys = blocks.map((block) => JSON.stringify(block));
  const before = target.blockKeys || [];
  let same = 0;
  while (same < keys.length && keys[same] === before[same]) same++;
  while (target.childNodes.length > same) target.lastChild.remove();
  target.append(...blocks.slice(same).map((block) => nodeOf(block, 0)));
  target.blockKeys = keys;
}
