"""Recordings of other programs: streams of llama-server, its log, and a sample of each format of `read_text`."""

import tomllib
from pathlib import Path

DATA = Path(__file__).parent / "data"
DRAFTED, NGRAM = ((DATA / name).read_text("utf-8") for name in ("draft.sse", "ngram.sse"))
LOG = DATA / "llama-server.log"
FORMATS = tomllib.loads((DATA / "formats.toml").read_text("utf-8"))
BENCH = FORMATS["mtp-bench"]["text"]
