// Servers for the page: Quire on the demo model, and a door in front of it that can write answers of its own.
import { spawn } from "node:child_process";
import { cpSync, mkdtempSync, writeFileSync } from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";

const ROOT = process.env.QUIRE_ROOT;

// The demo model, which takes the likeliest token.
export function demoModel() {
  const folder = path.join(mkdtempSync(path.join(tmpdir(), "quire-page-")), "quire-demo");
  cpSync(path.join(ROOT, "models/quire-demo"), folder, { recursive: true });
  writeFileSync(path.join(folder, "generation_config.json"), '{"temperature": 0.0}');
  return folder;
}

// Starts a server; {url, port, stop()}.
export async function startQuire(model, ...flags) {
  const port = flags.includes("--port") ? [] : ["--port", "0"];
  const child = spawn(process.env.QUIRE_BIN, ["serve", model, ...port, "--device", "cpu", ...flags]);
  let log = "";
  const url = await new Promise((resolve, reject) => {
    const take = (data) => {
      log += data;
      const found = /listening on (http:\/\/\S+)/.exec(log);
      if (found) resolve(found[1]);
    };
    child.stdout.on("data", take);
    child.stderr.on("data", take);
    child.on("exit", () => reject(new Error("the server ended:\n" + log)));
  });
  const ended = new Promise((resolve) => { child.on("exit", resolve); });
  return { url, port: new URL(url).port, stop: () => { child.kill("SIGTERM"); return ended; } };
}

// Passes everything on to `upstream`, except chats, which get `pieces` as the deltas of a stream, one every `pause` ms. `usage` makes
// the counts that come with piece i.
export async function startDoor(upstream, pieces, pause = 15, usage = () => undefined) {
  const server = http.createServer(async (request, response) => {
    if (request.method !== "POST") {
      const answer = await fetch(upstream + request.url);
      response.writeHead(answer.status, Object.fromEntries(answer.headers));
      return response.end(Buffer.from(await answer.arrayBuffer()));
    }
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    for (const [i, delta] of pieces.entries()) {
      response.write("data: " + JSON.stringify({ choices: [{ index: 0, delta }], usage: usage(i) }) + "\n\n");
      await new Promise((resolve) => { setTimeout(resolve, pause); });
    }
    response.end('data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n');
  });
  await new Promise((resolve) => { server.listen(0, "127.0.0.1", resolve); });
  return { url: "http://127.0.0.1:" + server.address().port, stop: () => { server.closeAllConnections(); server.close(); } };
}
