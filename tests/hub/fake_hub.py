"""A hub on loopback: the part of Hugging Face's protocol that downloads need, as its unmodified client uses it, and two
servers: the hub, and the store of large files that it sends to, on another port and so another origin."""
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

COMMIT = re.compile(r"[0-9a-f]{40}")


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repo:
    """A model at one commit. `files`: path -> bytes. Weights, and files of 10,000 bytes and more, are large ones."""

    def __init__(self, files, gated=False, private=False):
        self.gated, self.private, self.files = gated, private, {}
        self.refs = {}
        self.commit_files(files)

    def commit_files(self, files):
        """The files of a new commit on main."""
        self.files = dict(files)
        names = json.dumps(sorted((name, git_sha1(data)) for name, data in files.items()))
        self.commit = hashlib.sha1(names.encode()).hexdigest()
        self.refs["main"] = self.commit

    def is_large(self, path):
        return path.endswith((".safetensors", ".bin", ".gguf")) or len(self.files[path]) >= 10_000

    def etag(self, path):
        data = self.files[path]
        return hashlib.sha256(data).hexdigest() if self.is_large(path) else git_sha1(data)

    def knows(self, revision):
        return revision == self.commit or self.refs.get(revision) == self.commit


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub = None  # the FakeHub

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=None):
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def error(self, status, code, message):
        self.answer(status, {"error": message}, {"X-Error-Code": code, "X-Error-Message": message})

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = urllib.parse.urlsplit(self.path).path
        with self.hub.lock:
            self.hub.log.append((self.name, self.command, path, dict(self.headers)))
        if self.hub.fault is not None and self.hub.fault(self, path):
            return
        self.route(path)

    def send_range(self, data, headers):
        """The file, or the part of it that is asked for; as slowly or as short as the hub is told to."""
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        begin = int(wanted[1]) if wanted and not self.hub.ignores_ranges else 0
        if begin >= len(data) > 0:
            return self.answer(416, headers={"Content-Range": f"bytes */{len(data)}"})
        if wanted and not self.hub.ignores_ranges:
            headers = {**headers, "Content-Range": f"bytes {begin}-{len(data) - 1}/{len(data)}"}
        self.send_response(206 if "Content-Range" in headers else 200)
        self.send_header("Content-Length", str(len(data) - begin))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        end = len(data)
        if (cut := self.hub.cut_after) is not None and end - begin > cut:
            end = begin + cut
        self.wfile.write(data[begin:end])
        if end < len(data):  # the connection breaks off
            self.wfile.flush()
            self.close_connection = True


class HubHandler(Handler):
    name = "hub"

    def route(self, path):
        parts = [urllib.parse.unquote(part) for part in path.strip("/").split("/")]
        if parts[:2] == ["api", "models"] and len(parts) >= 4:
            repo = self.find_repo("/".join(parts[2:4]))
            return repo and self.api(repo, "/".join(parts[2:4]), parts[4:])
        if parts[:2] == ["api", "resolve-cache"]:
            repo = self.hub.repos["/".join(parts[3:5])]
            return self.small_file(repo, "/".join(parts[6:]))
        if len(parts) >= 5 and parts[2] == "resolve":
            repo = self.find_repo("/".join(parts[:2]))
            return repo and self.resolve(repo, "/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        self.error(404, "NotFound", "no such page")

    def token(self):
        return self.headers.get("Authorization", "").removeprefix("Bearer ")

    def find_repo(self, name):
        """The repository, if whoever asks may see it; else it answers as the real one does."""
        if self.token() and self.token() not in self.hub.tokens:
            self.answer(401, {"error": "Invalid credentials in Authorization header"},
                        {"X-Error-Message": "Invalid credentials in Authorization header"})
            return None
        repo = self.hub.repos.get(name)
        if repo is None or (repo.private and not self.token()):
            self.error(404 if self.token() else 401, "RepoNotFound", "Repository not found")
            return None
        return repo

    def revision(self, repo, revision):
        if repo.knows(revision):
            return True
        self.error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return False

    def api(self, repo, name, rest):
        revision = rest[1] if len(rest) > 1 else "main"
        if not self.revision(repo, revision):
            return None
        if rest[:1] == ["tree"]:
            return self.answer(200, [self.tree_entry(repo, path) for path in sorted(repo.files)])
        siblings = [{"rfilename": path} for path in sorted(repo.files)]
        siblings += [{"rfilename": path} for path in self.hub.more_names]
        return self.answer(200, {"_id": "1", "id": name, "modelId": name, "sha": repo.commit, "private": repo.private,
                                 "gated": "manual" if repo.gated else False, "tags": [], "downloads": 0, "likes": 0,
                                 "siblings": siblings})

    def tree_entry(self, repo, path):
        data = repo.files[path]
        entry = {"type": "file", "oid": git_sha1(data), "size": len(data), "path": path}
        if repo.is_large(path):
            entry["lfs"] = {"oid": repo.etag(path), "size": len(data), "pointerSize": 134}
        return entry

    def resolve(self, repo, name, revision, path):
        if repo.gated and self.token() not in self.hub.admitted:
            return self.error(403 if self.token() else 401, "GatedRepo", f"Access to model {name} is restricted")
        if not self.revision(repo, revision):
            return None
        if path not in repo.files:
            return self.error(404, "EntryNotFound", f"{path} does not exist")
        headers = {"X-Repo-Commit": repo.commit, "Accept-Ranges": "bytes"}
        if not repo.is_large(path):
            place = f"/api/resolve-cache/models/{name}/{repo.commit}/{urllib.parse.quote(path)}"
            return self.answer(307, headers={**headers, "Location": place})
        size = self.hub.claimed_sizes.get(path, len(repo.files[path]))
        return self.answer(302, headers={**headers, "X-Linked-Size": str(size), "X-Linked-ETag": f'"{repo.etag(path)}"',
                                         "ETag": '"of the redirect"',
                                         "Location": self.hub.store_url + f"/{repo.etag(path)}?Signature=x"})

    def small_file(self, repo, path):
        self.send_range(repo.files[path], {"X-Repo-Commit": repo.commit, "ETag": f'"{repo.etag(path)}"'})


class StoreHandler(Handler):
    name = "store"

    def route(self, path):
        for repo in self.hub.repos.values():
            for name, data in repo.files.items():
                if repo.is_large(name) and repo.etag(name) == path.strip("/"):
                    return self.send_range(self.hub.altered.get(name, data), {"ETag": '"of the store"'})
        return self.error(404, "EntryNotFound", "no such blob")


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):  # clients that go away
        pass


class FakeHub:
    def __init__(self):
        self.repos, self.log, self.lock = {}, [], threading.Lock()
        self.tokens, self.admitted = {"hf_good", "hf_stranger"}, {"hf_good"}
        self.fault = None  # called with (handler, path); true: it has answered
        self.cut_after = None  # bytes after which a connection breaks off
        self.ignores_ranges = False
        self.altered = {}  # path -> what the store gives instead
        self.claimed_sizes = {}  # path -> how long the hub says it is
        self.more_names = []  # that the list of files has besides
        self.servers = []
        urls = []
        for kind in (HubHandler, StoreHandler):
            server = QuietServer(("127.0.0.1", 0), type(kind.__name__, (kind,), {"hub": self}))
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            self.servers.append(server)
            urls.append(f"http://127.0.0.1:{server.server_port}")
        self.url, self.store_url = urls

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def requests(self, server=None, method=None):
        """(method, path) of what was asked so far."""
        with self.lock:
            return [(m, path) for s, m, path, _ in self.log
                    if server in (None, s) and method in (None, m)]
