"""Stands between an agent and a server: passes requests on, and keeps what was asked and answered."""
import http.client
import http.server
import json
import re
import threading


def anonymous(text, agent):
    """JSON text without paths, ids and times of this machine; the same id becomes the same number."""
    text = text.replace(str(agent.work), "/home/user/project").replace(str(agent.home), "/home/user")
    numbers = {}

    def numbered(found):
        number = numbers.setdefault(found[0], len(numbers) + 1)
        return found[1] + re.sub(r"[0-9A-Za-z]", "0", found[2][:-4]) + f"{number:04}"

    text = re.sub(r"(?<![0-9a-f-])()([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b", numbered, text)
    text = re.sub(r"\b((?:call|fc|ses|rs)_)(\w{20,})", numbered, text)
    text = re.sub(r"(Chunk ID: )[0-9a-f]+", r"\1abc123", text)
    text = re.sub(r"(?<=_at_unix_ms\W{3})\d+|(?<=Wall time: )[0-9.]+", "0", text)
    return re.sub(r"\b[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d{4}\b", "Thu Jan 01 2026", text)


class Exchange:
    def __init__(self, path, sent):
        self.path, self.body = path, json.loads(sent) if sent else None
        self.status, self.answer = None, b""

    def events(self):
        """The events of a streamed answer."""
        lines = [line.removeprefix("data: ") for line in self.answer.decode().splitlines() if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]


def _handler(server, seen):
    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def pass_on(self):
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            exchange = Exchange(self.path, sent)
            seen.append(exchange)
            connection = http.client.HTTPConnection(server.host, server.port, timeout=300)
            kept = {name: value for name, value in self.headers.items()
                    if name.lower() not in ("host", "content-length", "connection", "accept-encoding")}
            connection.request(self.command, self.path, sent or None, kept)
            answer = connection.getresponse()
            exchange.status = answer.status
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.getheader("Content-Type") or "application/json")
            self.end_headers()
            while piece := answer.read1(65536):
                exchange.answer += piece
                self.wfile.write(piece)
                self.wfile.flush()
            connection.close()

        do_GET = do_POST = pass_on

    return Handler


class Recorder:
    """`with Recorder(server) as recorder`: recorder.url is where the agent goes, recorder.seen its exchanges."""

    def __init__(self, server):
        self.seen = []
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(server, self.seen))
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._http.shutdown()
        self._http.server_close()

    def turns(self):
        """The exchanges that offer tools: the agent's own turns, without what it asks besides (a title, a list of models)."""
        return [exchange for exchange in self.seen if exchange.body and exchange.body.get("tools")]
