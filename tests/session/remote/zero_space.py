"""A ZeroGPU Space without Hugging Face: the real `spaces` package, a stand-in of its service, and no GPU.

A pytest plugin, so that it is loaded first, in a separate process: `spaces` changes torch permanently.
"""

import json
import os
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

GPU = {"idle": True, "nvidiaIndex": 0, "nvidiaUUID": "0", "allowToken": "token"}


class Service:
    """The four routes of the service.

    answers: replies to the next requests for a GPU; each is a status, a body and headers
    asked, allowed, released: the parameters of the received requests
    """

    def __init__(self):
        self.answers, self.asked, self.allowed, self.released = [], [], [], []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                url = urlsplit(self.path)
                service.answer(self, url.path, {k: v[0] for k, v in parse_qs(url.query).items()})

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, request, path, asked):
        status, body, headers = 200, {}, {}
        if path == "/schedule":
            self.asked.append(asked)
            status, body, headers = self.answers.pop(0) if self.answers else (200, GPU, {})
        elif path == "/allow":
            self.allowed.append(int(asked["pid"]))
        elif path == "/release":
            self.released.append(asked["fail"])
        events = body if isinstance(body, list) else None
        request.send_response(status)
        kind = "text/event-stream" if events else "application/json"
        for name, value in {"Content-Type": kind, **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        for event in events or [json.dumps(body)]:
            request.wfile.write(event.encode())
            request.wfile.flush()
            time.sleep(0.02 if events else 0)


def enter() -> Service:
    """Make this process a ZeroGPU Space. returns: the service that it calls"""
    folder, service = Path(tempfile.mkdtemp(prefix="specdemo-zero-")), Service()
    (folder / "cgroup").write_text("0::/space\n")
    os.environ |= {
        "SPACES_ZERO_GPU": "true",
        "SPACES_ZERO_DEVICE_API_URL": service.url,
        "ZEROGPU_PROC_SELF_CGROUP_PATH": str(folder / "cgroup"),
        "ZEROGPU_OFFLOAD_DIR": str(folder / "tensors"),
        "HOME": str(folder),
        "OMP_NUM_THREADS": "1",
    }
    import torch

    torch.version.cuda = torch.version.cuda or "12.8"  # the same as a CUDA build
    torch.cuda._is_in_bad_fork = bool  # which can be pickled
    torch._C._cuda_init = getattr(torch._C, "_cuda_init", lambda: None)
    import spaces.zero.torch as device
    from spaces.zero.torch import patching

    def move(callback):  # noqa: ARG001 - is called by its name
        for stands_for, weights in patching.cuda_aliases.items():
            stands_for.data = weights

    device.init, device.move, device.pack = lambda _uuid: None, move, lambda: 0
    return service


service = enter()
