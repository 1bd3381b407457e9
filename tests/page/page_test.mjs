// What a person does with the page, in a real browser.
import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";
import { demoModel, startDoor, startQuire } from "./servers.mjs";

const SHOTS = process.env.QUIRE_ROOT + "/build/page/shots/";
let browser, model, quire;

before(async () => {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });
  model = demoModel();
  quire = await startQuire(model);
});
after(async () => {
  await browser.close();
  await quire.stop();
});

// Runs `use` with a page of `url`: nothing may leave its origin, no script may fail and no policy be broken.
async function visit(url, options, use) {
  const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on("request", (request) => {
    if (!/^(data|blob):/.test(request.url()) && new URL(request.url()).origin !== new URL(url).origin)
      wrong.push("left its origin: " + request.url());
  });
  page.on("pageerror", (error) => wrong.push(error.message));
  page.on("console", (said) => { if (/Content Security|Trusted|Refused to/i.test(said.text())) wrong.push(said.text()); });
  await page.goto(url);
  await use(page);
  assert.deepEqual(wrong, []);
  await context.close();
}

async function ready(page) {
  await page.waitForFunction(() => document.getElementById("model").value !== "");
}

async function send(page, text) {
  await page.fill("#input", text);
  await page.press("#input", "Enter");
}

// The text of the last answer, when it is complete.
async function answered(page, count = 1) {
  await page.waitForFunction((n) => document.querySelectorAll(".assistant").length === n &&
    document.querySelector(".assistant:last-of-type").getAttribute("aria-busy") === "false", count, { timeout: 60000 });
  return page.locator(".assistant").last().locator(".text").innerText();
}

test("first visit, send, regenerate, edit, reload", async () => {
  await visit(quire.url, {}, async (page) => {
    await ready(page);
    await page.screenshot({ path: SHOTS + "first.png" });
    await send(page, "What is 123 + 456?");
    const first = await answered(page);
    assert.match(first, /579/);
    assert.match(await page.locator(".stats").innerText(), /tokens\/s · \d+ tokens · prompt \d+/);
    await page.click("text=Regenerate");
    assert.equal(await answered(page), first);
    assert.match(await page.locator(".stats").innerText(), /cached/);
    await page.click("text=Edit");
    await page.locator(".user textarea").fill("What is 100 + 200?");
    await page.locator(".user textarea").press("Enter");
    assert.match(await answered(page), /300/);
    await page.screenshot({ path: SHOTS + "chat.png" });
    await page.reload();
    await ready(page);
    assert.match(await answered(page), /300/);
    assert.match(await page.locator("#list .current").innerText(), /123/);
    await page.click("#new");
    assert.equal(await page.locator(".message").count(), 0);
    await page.locator("#list .open").last().click();
    assert.equal(await page.locator(".message").count(), 2);
  });
});

test("stop in the middle", async () => {
  const counts = (i) => ({ prompt_tokens: 9, completion_tokens: i + 1, prompt_tokens_details: { cached_tokens: 7 } });
  const door = await startDoor(quire.url, Array.from({ length: 400 }, (_, i) => ({ content: "word" + i + " " })), 15, counts);
  await visit(door.url, {}, async (page) => {
    await ready(page);
    await send(page, "Count");
    await page.waitForFunction(() => document.querySelector(".assistant")?.innerText.includes("word5 "));
    await page.click("#stop");
    const text = await answered(page);
    assert.ok(text.includes("word5") && !text.includes("word399"), text);
    const [, rate, count] = /^([\d.]+) tokens\/s · (\d+) tokens · prompt 9 \(7 cached\) · stopped$/.exec(await page.locator(".stats").innerText());
    assert.equal(Number(count), text.trim().split(/\s+/).length);
    assert.ok(rate > 5 && rate < 70, rate); // 15 ms and more for each
    assert.ok(await page.locator("#send").isVisible());
  });
  door.stop();
});

test("Quire counts the tokens of an answer that is stopped", async () => {
  await visit(quire.url, {}, async (page) => {
    await ready(page);
    // The page gets the first four events of what the server sends, then the button is pressed.
    await page.evaluate(() => {
      const ask = window.fetch;
      window.fetch = async (path, options) => {
        const answer = await ask(path, options);
        if (!path.includes("chat")) return answer;
        let held = "", events = 0;
        const decoder = new TextDecoder(), encoder = new TextEncoder();
        const cut = new TransformStream({ transform(bytes, controller) {
          const parts = (held + decoder.decode(bytes, { stream: true })).split("\n\n");
          held = parts.pop();
          for (const part of parts) {
            if (++events <= 4) controller.enqueue(encoder.encode(part + "\n\n"));
            else if (events === 5) setTimeout(() => document.getElementById("stop").click(), 50);
          }
        } });
        return new Response(answer.body.pipeThrough(cut), { status: answer.status });
      };
    });
    await send(page, "Tell me a story about a fox.");
    await answered(page);
    assert.match(await page.locator(".stats").innerText(), /\d+ tokens · prompt \d+.* · stopped$/);
  });
});

test("thinking is switched where the template knows how", async () => {
  const template = path.join(mkdtempSync(path.join(tmpdir(), "quire-page-")), "template.jinja");
  writeFileSync(template, "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n");
  const plain = await startQuire(model, "--chat-template", template);
  await visit(plain.url, {}, async (page) => {
    const info = page.waitForResponse((response) => response.url().endsWith("/tokenizer_info"));
    await ready(page);
    await (await info).finished();
    await page.waitForTimeout(100);
    assert.equal(await page.locator("#thinking").isVisible(), false);
    await send(page, "What is 1 + 1?");
    assert.match(await answered(page), /2/);
  });
  await plain.stop();
  await visit(quire.url, {}, async (page) => {
    await ready(page);
    await page.waitForSelector("#thinking:not([hidden])");
    for (const [n, [choice, sent]] of [["", undefined], ["off", false], ["on", true]].entries()) {
      await page.selectOption("#thinking", choice);
      const asked = page.waitForRequest((request) => request.method() === "POST");
      await send(page, "What is 1 + 1?");
      assert.equal((await asked).postDataJSON().enable_thinking, sent);
      await answered(page, n + 1);
      assert.equal(await page.locator(".error").count(), 0);
    }
    await page.reload(); // kept
    await page.waitForSelector("#thinking:not([hidden])");
    assert.equal(await page.locator("#thinking").inputValue(), "on");
    await page.screenshot({ path: SHOTS + "thinking.png" });
    await page.setViewportSize({ width: 390, height: 780 });
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= 390));
    await page.screenshot({ path: SHOTS + "phone-thinking.png" });
  });
});

test("thinking and tool calls are shown, a result goes on", async () => {
  const call = { index: 0, id: "c1", function: { name: "get_weather", arguments: '{"city": "Oslo"}' } };
  const door = await startDoor(quire.url, [{ reasoning_content: "I should look." }, { content: "Let me see." }, { tool_calls: [call] }]);
  await visit(door.url, {}, async (page) => {
    await ready(page);
    await send(page, "Weather?");
    await answered(page);
    assert.equal(await page.locator("details.reasoning").getAttribute("open"), null);
    await page.locator("details.reasoning summary").click();
    assert.ok(await page.locator("text=I should look.").isVisible());
    assert.match(await page.locator("details.call").innerText(), /get_weather[\s\S]*"city": "Oslo"/);
    await page.screenshot({ path: SHOTS + "tools.png" });
    await page.locator("details.call textarea").fill("7 degrees");
    const asked = page.waitForRequest((request) => request.method() === "POST");
    await page.click("text=Give result");
    const { messages } = (await asked).postDataJSON();
    assert.deepEqual(messages.at(-1), { role: "tool", content: "7 degrees", tool_call_id: "c1" });
    assert.equal(messages.at(-2).tool_calls[0].function.name, "get_weather");
    await answered(page, 2);
  });
  door.stop();
});

const HOSTILE = [
  "# <img src=x onerror=window.hit=1>\n", "<script>window.hit = 2</scr", "ipt>\n\n<iframe srcdoc='<script>parent.hit=3</script>",
  "'>\n\n[a](javascript:window.hit=4) [b](data:text/html,x) [c](JaVaScRiPt:hit=5) [d](https://ok.example/x)\n\n",
  "<https://ok.example> [e](//evil.example) [f](vbscript:x) <svg onload=hit=6>\n\n", "```<b onclick=hit=7>\n<script>hit=8</script>\n",
  "```\n\n| <img src=x onerror=hit=9> | b |\n|---|---|\n| <a href='javascript:hit=10'>x</a> | `<u>` |\n\n", "- <details open ontoggle=hit=11>\n",
  "</textarea></style><style>body{display:none}</style>", "[open](https://ok.example/\" onclick=\"hit=12) **<b", "old**",
];

test("what a model writes never is markup", async () => {
  const pieces = [{ reasoning_content: HOSTILE.join("") }, ...HOSTILE.join("").match(/[\s\S]{1,3}/g).map((content) => ({ content }))];
  const door = await startDoor(quire.url, pieces, 3);
  await visit(door.url, {}, async (page) => {
    await ready(page);
    await page.evaluate(() => {
      window.bad = [];
      new MutationObserver(() => {
        window.bad.push(...[...document.querySelectorAll("#log :is(script,img,iframe,svg,style,b,u,object,embed,form)")].map((e) => e.outerHTML));
      }).observe(document.getElementById("log"), { childList: true, subtree: true });
    });
    await send(page, HOSTILE.join(""));
    const text = await answered(page);
    assert.ok(text.includes("<script>window.hit = 2</script>") && text.includes("javascript:window.hit=4"));
    assert.deepEqual(await page.evaluate(() => window.bad), []);
    assert.equal(await page.evaluate(() => window.hit), undefined);
    const links = await page.locator("#log a").evaluateAll((all) => all.map((a) => [a.href, a.rel]));
    assert.ok(links.length > 0);
    for (const [href, rel] of links) assert.ok(href.startsWith("https://ok.example") && rel.includes("noopener"), href);
    assert.ok(await page.locator("#input").isVisible());
    await page.reload();
    await ready(page);
    assert.equal(await page.evaluate(() => window.hit), undefined);
  });
  door.stop();
});

// Levels upon levels, and lines in which an expression could look for its end again and again.
const ENDLESS = [">".repeat(20000) + " quote", Array.from({ length: 400 }, (_, i) => " ".repeat(2 * i) + "- item").join("\n"),
  "# a" + " ".repeat(20000) + "b", "[".repeat(10000), "last words"].join("\n\n");

test("an answer of a thousand levels", async () => {
  const door = await startDoor(quire.url, [{ content: ENDLESS }], 2);
  await visit(door.url, {}, async (page) => {
    await ready(page);
    await send(page, "Nest");
    assert.match(await answered(page), /quote[^]*item[^]*last words/);
    await page.reload();  // kept, and shown again
    await ready(page);
    assert.match(await answered(page), /last words/);
  });
  door.stop();
});

const MARKDOWN = "## A plan\n\nSome **bold**, *soft* and `code` words with a [link](https://ok.example).\n\n1. first\n   - inner\n2. second\n\n" +
  "```python\ndef add(a, b):\n    return a + b\n```\n\n> A quote.\n\n| name | value |\n|---|---|\n| a | 1 |\n| b | 2 |\n";

for (const colorScheme of ["light", "dark"]) {
  test("markdown and copying, " + colorScheme, async () => {
    const door = await startDoor(quire.url, MARKDOWN.match(/[\s\S]{1,9}/g).map((content) => ({ content })), 2);
    await visit(door.url, { colorScheme, permissions: ["clipboard-read", "clipboard-write"] }, async (page) => {
      await ready(page);
      await send(page, "Show me everything");
      await answered(page);
      for (const tag of ["h2", "strong", "em", "p code", "ol > li > ul > li", "pre code", "blockquote", "td"])
        assert.ok(await page.locator(".assistant " + tag).count(), tag);
      assert.equal(await page.locator(".assistant ol > li").count(), 2);
      await page.locator(".code-head button").click();
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "def add(a, b):\n    return a + b");
      await page.screenshot({ path: SHOTS + "markdown-" + colorScheme + ".png" });
      const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      assert.equal(paper, colorScheme === "dark" ? "rgb(24, 26, 27)" : "rgb(250, 249, 246)");
      await page.click("#theme");
      assert.notEqual(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), paper);
    });
    door.stop();
  });
}

test("a key is asked for, and a wrong one is said", async () => {
  const closed = await startQuire(model, "--api-key", "secret");
  await visit(closed.url, {}, async (page) => {
    await page.waitForFunction(() => document.getElementById("state").textContent.includes("API key"));
    for (const key of ["wrong", "secret"]) {
      await page.click("#open-settings");
      await page.fill("#key", key);
      if (key === "wrong") await page.screenshot({ path: SHOTS + "settings.png" });
      await page.click("#close-settings");
      if (key === "wrong") await page.waitForTimeout(300);
      assert.equal(await page.locator("#settings").isVisible(), false);
      if (key === "wrong") assert.match(await page.locator("#state").innerText(), /API key/);
    }
    await ready(page);
    await send(page, "What is 1 + 1?");
    assert.match(await answered(page), /2/);
    await page.reload();
    await ready(page);
    const other = await page.context().newPage(); // a key goes no further than its tab,
    await other.goto(closed.url);
    await other.waitForFunction(() => document.getElementById("state").textContent.includes("API key"));
    assert.ok(!(await page.evaluate(() => JSON.stringify(localStorage))).includes("secret"));
    await page.click("#open-settings");
    await page.check("#keep_key"); // unless it shall
    await page.click("#close-settings");
    await ready(other);
    await other.close();
    await page.click("#open-settings");
    await page.uncheck("#keep_key");
    await page.click("#close-settings");
    assert.ok(!(await page.evaluate(() => JSON.stringify(localStorage))).includes("secret"));
  });
  await closed.stop();
});

test("two tabs keep each other's conversations", async () => {
  await visit(quire.url, {}, async (page) => {
    const other = await page.context().newPage();
    await other.goto(quire.url);
    const titles = async (tab, count) => {
      await tab.waitForFunction((n) => document.querySelectorAll("#list .open").length === n, count);
      return (await tab.locator("#list .open").allInnerTexts()).sort();
    };
    await ready(page);
    await ready(other);
    await send(page, "What is 1 + 1?");
    await answered(page);
    await send(other, "What is 2 + 2?");
    await answered(other);
    const both = ["What is 1 + 1?", "What is 2 + 2?"];
    assert.deepEqual(await titles(page, 2), both);
    await other.reload();
    assert.deepEqual(await titles(other, 2), both);
    other.on("dialog", (dialog) => dialog.accept());
    await other.getByRole("button", { name: "Delete What is 1 + 1?" }).click();
    assert.deepEqual(await titles(page, 1), both.slice(1)); // it was open here
    assert.match(await page.locator("#log").innerText(), /2 \+ 2/);
    await page.reload();
    assert.deepEqual(await titles(page, 1), both.slice(1));
    await other.close();
  });
});

test("an answer that a reload cuts off is kept as far as it came", async () => {
  const door = await startDoor(quire.url, [{ content: "The beginning" }, ...Array(400).fill({ content: " and more" })], 50);
  await visit(door.url, {}, async (page) => {
    await ready(page);
    await send(page, "Go on");
    await page.waitForFunction(() => document.querySelector("#log").innerText.includes("more and more"));
    await page.reload();
    assert.match(await answered(page), /^The beginning and more and more/);
    assert.match(await page.locator(".stats").innerText(), /stopped/);
  });
  door.stop();
});

test("the server goes and comes back", async () => {
  let server = await startQuire(model);
  await visit(server.url, {}, async (page) => {
    await ready(page);
    await server.stop();
    await send(page, "What is 1 + 1?");
    await page.waitForSelector(".error");
    assert.match(await page.locator(".error").innerText(), /cannot be reached/);
    server = await startQuire(model, "--port", server.port);
    await page.waitForFunction(() => document.getElementById("state").textContent === "", null, { timeout: 20000 });
    await page.click("text=Regenerate");
    assert.match(await answered(page), /2/);
  });
  await server.stop();
});

test("a phone of 390 pixels", async () => {
  await visit(quire.url, { viewport: { width: 390, height: 780 }, hasTouch: true, isMobile: true }, async (page) => {
    await ready(page);
    const fits = () => page.evaluate(() => document.documentElement.scrollWidth <= 390);
    assert.ok(await fits());
    await send(page, "What is 123 + 456?");
    assert.match(await answered(page), /579/);
    assert.ok(await fits());
    await page.screenshot({ path: SHOTS + "phone.png" });
    await page.tap("#menu");
    assert.ok(await page.locator("#new").isVisible());
    await page.waitForTimeout(200);
    await page.screenshot({ path: SHOTS + "phone-menu.png" });
    await page.tap("#new");
    assert.equal(await page.locator("#side").isVisible(), false);
    await page.tap("#open-settings");
    assert.ok(await fits());
    await page.screenshot({ path: SHOTS + "phone-settings.png" });
  });
});

test("the keyboard alone", async () => {
  await visit(quire.url, {}, async (page) => {
    await ready(page);
    await page.keyboard.type("What is 2 + 3?"); // the field has the focus
    await page.keyboard.press("Enter");
    assert.match(await answered(page), /5/);
    const reached = new Set();
    for (let i = 0; i < 24; ++i) {
      await page.keyboard.press("Tab");
      reached.add(await page.evaluate(() => document.activeElement.textContent.trim() || document.activeElement.id));
    }
    for (const name of ["Regenerate", "Copy", "Edit", "Settings", "New chat", "Export", "Theme"]) assert.ok(reached.has(name), name);
    await page.locator("#open-settings").focus();
    await page.keyboard.press("Enter");
    assert.ok(await page.locator("#settings").isVisible());
    await page.keyboard.press("Escape");
    assert.equal(await page.locator("#settings").isVisible(), false);
  });
});

test("conversations are exported", async () => {
  await visit(quire.url, {}, async (page) => {
    await ready(page);
    await send(page, "What is 1 + 2?");
    await answered(page);
    const download = page.waitForEvent("download");
    await page.click("#export");
    const chunks = [];
    for await (const chunk of await (await download).createReadStream()) chunks.push(chunk);
    const chats = JSON.parse(Buffer.concat(chunks));
    assert.equal(chats[0].messages[0].content, "What is 1 + 2?");
  });
});
