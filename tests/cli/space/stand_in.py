"""The hub as far as Spaces need it, played on loopback: accounts, repositories, the store for large files."""

import base64
import hashlib
import json
import sys
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from loopback import Handler

from specdemo.config.errors import UserError

NAME = "me/demo"
GOOD = "hf_good"
STARTER = {".gitattributes": b"*.safetensors filter=lfs\n", "README.md": b"---\nsdk: gradio\n---\n"}


@dataclass
class Space:
    """One repository.

    files: content of a file, or its digest if it is in the store for large files
    stages: one per request for the runtime; the last one is repeated
    """

    sdk: str
    private: bool = False
    hardware: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=lambda: dict(STARTER))
    commits: int = 1
    card: dict = field(default_factory=dict)
    stages: list[str] = field(default_factory=lambda: ["RUNNING"])

    @property
    def sha(self) -> str:
        return f"{self.commits:040x}"


class Hub(ThreadingHTTPServer):
    """State of the hub, and the requests that it received.

    faults: answers that replace the usual ones, by the end of method and path, or by their start and a star:
    a status with the hub's message, or None for a connection that is cut
    host: address of every Space's page
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.role = "write"  # rights of the token
        self.spaces: dict[str, Space] = {}
        self.asked: list[str] = []
        self.faults: dict[str, tuple[int, str] | None] = {}
        self.data: list[bytes] = []  # stored large files, and their lists
        self.lists = b""
        self.host = self.url
        self.page = b'<meta name="generator" content="specdemo-site">'  # page of a static Space
        self.visitors: list[str | None] = []  # authorization header of each visitor

    def handle_error(self, *where):
        """A connection that is cut is none of a test's business."""
        if not isinstance(sys.exception(), OSError | ValueError):
            super().handle_error(*where)

    def changes(self) -> list[str]:
        """Requests that change the hub."""
        reads = ("preupload", "validate-yaml", "/cas/")
        return [
            line
            for line in self.asked
            if not line.startswith(("GET", "HEAD")) and not any(word in line for word in reads)
        ]


class Answers(Handler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def respond(self):
        self.path = urlsplit(self.path).path
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        line = f"{self.command} {self.path}"
        self.server.asked.append(line)
        for end, fault in self.server.faults.items():
            if line.endswith(end) or (end.endswith("*") and line.startswith(end[:-1])):
                return self.cut() if fault is None else self.refuse(*fault)
        if self.path.startswith("/cas/"):
            return self.store()
        if self.path == "/":
            self.server.visitors.append(self.headers.get("authorization"))
            return self.send(self.server.page, kind="text/html")
        if self.headers.get("authorization") != f"Bearer {GOOD}":
            return self.refuse(401, "Invalid credentials in Authorization header")
        parts = self.path.strip("/").split("/")
        if parts[:2] == ["api", "spaces"]:
            return self.space("/".join(parts[2:4]), parts[4:])
        return self.account("/".join(parts[1:]))

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = respond

    def account(self, what):
        if what == "whoami-v2":
            token = {"role": self.server.role}
            return self.send({"name": "me", "auth": {"accessToken": token}})
        if what == "validate-yaml":
            whole = "title:" in json.loads(self.body)["content"]
            return self.send(
                {"errors": [] if whole else [{"message": '"title" is required'}]},
                200 if whole else 400,
            )
        asked = json.loads(self.body)
        repo = f"{asked['organization']}/{asked['name']}"
        if repo in self.server.spaces:
            return self.refuse(409, "You already created this space repo")
        variables = {item["key"]: item["value"] for item in asked.get("variables", [])}
        self.server.spaces[repo] = Space(
            asked["sdk"], asked.get("visibility") == "private", asked.get("hardware"), variables
        )
        return self.send({"url": f"{self.server.url}/spaces/{repo}"})

    def space(self, repo, rest):
        space = self.server.spaces.get(repo)
        if not space:
            return self.refuse(404, "Repository not found", "RepoNotFound")
        what = rest[0] if rest else "info"
        return getattr(self, what.replace("-", "_"))(repo, space, rest[1:])

    def info(self, repo, space, _rest):
        self.send(
            {
                "id": repo,
                "sha": space.sha,
                "private": space.private,
                "sdk": space.sdk,
                "host": self.server.host,
                "cardData": space.card,
                "siblings": [{"rfilename": name} for name in space.files],
            }
        )

    revision = info

    def tree(self, _repo, space, _rest):
        files = space.files.items()
        self.send([{"type": "file", "path": p, "size": len(d), "oid": _blob(d)} for p, d in files])

    def commits(self, _repo, space, _rest):
        row = {"title": "", "message": "", "date": "2026-01-01T00:00:00.000Z", "authors": []}
        self.send([{"id": f"{number:040x}", **row} for number in range(space.commits)])

    def preupload(self, _repo, space, _rest):
        found = []
        for file in json.loads(self.body)["files"]:
            path = file["path"]
            large, present = path.endswith((".npy", ".safetensors")), space.files.get(path)
            oid = None
            if present is not None:
                oid = present.decode() if large else _blob(present)
            mode = "lfs" if large else "regular"
            found.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        self.send({"files": found})

    def xet_write_token(self, _repo, _space, _rest):
        self.send({"casUrl": f"{self.server.url}/cas", "exp": 4_000_000_000, "accessToken": "x"})

    def commit(self, repo, space, _rest):
        from huggingface_hub import SpaceCard

        for line in self.body.splitlines():
            step = json.loads(line)
            value = step["value"]
            if step["key"] == "file":
                space.files[value["path"]] = base64.b64decode(value["content"])
            elif step["key"] == "lfsFile":
                if _listed(value["oid"]) not in self.server.lists:
                    return self.refuse(400, "This file was never uploaded")
                space.files[value["path"]] = value["oid"].encode()
            elif step["key"] == "deletedFile":
                del space.files[value["path"]]
        space.commits += 1
        space.card = SpaceCard(space.files["README.md"].decode()).data.to_dict()
        space.sdk = space.card["sdk"]
        address = f"{self.server.url}/spaces/{repo}/commit/{space.sha}"
        return self.send({"commitUrl": address, "commitOid": space.sha})

    def variables(self, _repo, space, _rest):
        if self.command == "POST":
            asked = json.loads(self.body)
            space.variables[asked["key"]] = asked["value"]
        self.send({name: {"value": value} for name, value in space.variables.items()})

    def runtime(self, _repo, space, _rest):
        stage = space.stages.pop(0) if len(space.stages) > 1 else space.stages[0]
        hardware = {"current": None, "requested": space.hardware}
        self.send({"stage": stage, "hardware": hardware, "sha": space.sha})

    def hardware(self, repo, space, rest):
        space.hardware = json.loads(self.body)["flavor"]
        self.runtime(repo, space, rest)

    def settings(self, _repo, space, _rest):
        space.private = json.loads(self.body).get("visibility") == "private"
        self.send({})

    def store(self):
        """The store for large files, in the protocol of the client's own uploader: data, then a list that describes it."""
        if "/xorbs/" in self.path:
            self.server.data.append(self.body)
            return self.send({"was_inserted": True})
        if "/shards" in self.path:
            self.server.lists += self.body
            return self.send(b'{"type": "result", "result": 1}\n')
        return self.refuse(404, "The older way, please")

    def cut(self):
        self.close_connection = True
        self.connection.close()

    def refuse(self, status, words, code=""):
        headers = {"X-Error-Message": words, **({"X-Error-Code": code} if code else {})}
        self.send({"error": words}, status, headers)

    def send(self, data, status=200, headers=(), kind="application/json"):
        data = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.answer(status, data, headers, kind)


def _listed(digest):
    """A sha256 as the store's lists write it: four numbers, the low byte first."""
    whole = bytes.fromhex(digest)
    return b"".join(whole[start : start + 8][::-1] for start in range(0, 32, 8))


def _blob(data):
    """The name that git gives to a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def refusal(call, *given, **named) -> UserError:
    """Return the error of a call, all three parts of which are sentences."""
    with pytest.raises(UserError) as caught:
        call(*given, **named)
    for part in (caught.value.message, caught.value.unaffected, caught.value.advice):
        assert part.endswith(".")
    return caught.value
