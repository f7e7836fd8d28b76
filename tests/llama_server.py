"""A real llama-server in a process of its own, which is killed at the end: in the tests' process its end may hang."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

SERVE = """
import sys, xllamacpp
options = xllamacpp.CommonParams()
options.model.path, options.hostnames, options.n_parallel = sys.argv[1], ["127.0.0.1"], 1
options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
{options}
server = xllamacpp.Server(options)
print("\\naddress", server.listening_address, flush=True)
sys.stdin.read()
"""


@contextmanager
def llama_server(
    model: str, options: str, log: int | IO[bytes] = subprocess.DEVNULL
) -> Iterator[str]:
    """Run a server until the block ends. options: Python statements that set `options`. yields: its address"""
    child = subprocess.Popen(
        [sys.executable, "-c", SERVE.format(options=options), model],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, encoding="utf-8",
    )  # fmt: skip
    assert child.stdout
    late = threading.Timer(60, child.kill)
    late.start()
    try:
        lines = iter(child.stdout.readline, "")
        address = next(line.split()[1] for line in lines if line.startswith("address "))
        late.cancel()
        yield address
    finally:
        late.cancel()
        child.kill()
        child.communicate()
