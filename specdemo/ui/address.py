"""The page's address for others: as a QR code, and whether they can reach it."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import segno

from specdemo.config.settings import loopback
from specdemo.config.strings import strings

words = strings("teach")

QUIET = 4  # light modules around a QR code
OTHERS = "python app.py --host 0.0.0.0"


def qr(address: str) -> dict[str, object]:
    """A QR code. returns: modules a side with the margin, and SVG path data of the dark ones; size 0 when too long"""
    try:
        code = segno.make_qr(address, error="l")
    except segno.DataOverflowError:
        return {"size": 0, "path": ""}
    rows = list(code.matrix_iter(border=QUIET))
    dark = [(x, y) for y, row in enumerate(rows) for x, module in enumerate(row) if module]
    return {"size": len(rows), "path": "".join(f"M{x} {y}h1v1h-1z" for x, y in dark)}


def others_reach(origin: str, host: str, own: str) -> dict[str, str]:
    """Whether others can open the page at the address that this browser uses.

    host: what the server listens on; own: this machine's address in its network, "" if it has none
    returns: a sentence, "" when they can, and the address that they can open, "" when there is none yet
    """
    parts = urlsplit(origin)
    if not loopback(parts.hostname or "") or not own:
        return {"sentence": "", "address": ""}
    address = f"{parts.scheme}://{own}" + (f":{parts.port}" if parts.port else "")
    if loopback(host):
        sentence = words.LOCAL_ONLY.format(command=OTHERS, address=address)
        return {"sentence": sentence, "address": ""}
    sentence = words.LOCAL_NAME.format(here=origin, address=address)
    return {"sentence": sentence, "address": address}


def own_address() -> str:
    """This machine's address in its network, or "". Nothing is sent: a UDP socket only looks up the route."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))
            found = str(probe.getsockname()[0])
    except OSError:
        return ""
    return "" if loopback(found) else found
