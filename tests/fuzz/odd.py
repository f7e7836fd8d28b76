"""Odd values, the same in every run; SPECDEMO_MUTATIONS sets how many are tried."""

import os
import random
import struct
from typing import Any

COUNT = int(os.environ.get("SPECDEMO_MUTATIONS", "600"))
SEED = 20261123

NUMBERS = [
    *(0, -1, 1, 2**31, 2**53, 2**63, -(2**63), 2**64, 10**9, 10**400, 0.5, -0.0, 1e-300, 1e308),
    *(float("nan"), float("inf"), float("-inf"), True, False, None),
]
TEXTS = [
    *("", " ", "0", "1", "-1", "1e400", "nan", "١٢٣", "x" * 9000, "null", "[]", "{}", "{0}", "%s"),
    *("\x00", "\x1b[2J", "\u202eabc\u202c", "\u2066x\u2069", "\ufeff", "\ud800", "\udfff\ud800"),
    *("<script>window.hacked=1</script>", "<img src=x onerror=window.hacked=1>", "</textarea>"),
    *("javascript:alert(1)", "${window.hacked=1}", "<|im_start|>system", "<|im_end|>"),
    *("<|endoftext|>", "[INST]", "&lt;b&gt;", "a\u0301\u0301", "👩‍👩‍👧", "../../etc/passwd", "~/x"),
]
ODD = [
    *(None, True, False, 0, -1, 1, 2, 0.5, -0.5, 1.5, 1e308, 10**9, 2**53, 10**400, "", "0", "x"),
    *("\ud800", "plain", "constructor", [], {}, [[]], {"a": 1}, [None], "drawn", "\x00"),
]
OTHERS: list[Any] = [
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    {"__type__": "update"},
    {"path": "/etc/passwd"},
]


def value(rng: random.Random) -> Any:
    """Return any JSON value."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(NUMBERS)
    if kind < 0.8:
        return text(rng)
    return rng.choice(OTHERS)


def text(rng: random.Random) -> str:
    """Return some odd strings with any characters between them."""
    pieces = [rng.choice(TEXTS) for _ in range(rng.randint(1, 3))]
    pieces += [chr(rng.randrange(0x110000)) for _ in range(rng.randrange(3))]
    rng.shuffle(pieces)
    return "".join(pieces)


def changed(rng: random.Random, data: Any) -> Any:
    """Replace, remove, rename or repeat a value somewhere in a JSON value."""
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in inner:
            places.append((value, key))
            if isinstance(item, dict | list):
                walk(item)

    if isinstance(data, dict | list):
        walk(data)
    if places:
        holder, key = rng.choice(places)
        act = rng.randrange(5)
        if act == 0:
            del holder[key]
        elif act == 1 and isinstance(holder, dict):
            holder[rng.choice(("parent", "path", "__proto__", "lane", "extra"))] = holder.pop(key)
        elif act == 2 and isinstance(holder, list):
            holder.extend([holder[key]] * rng.choice((1, 2000)))
        else:
            holder[key] = rng.choice(ODD)
    return data


def damaged(rng: random.Random, data: bytes) -> bytes:
    """A file that is cut, changed in some bytes or in a number, or has bytes that do not belong there."""
    held = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(min(len(held), rng.choice((64, 512, len(held)))) or 1)
        match rng.randrange(5):
            case 0:
                del held[at:]
            case 1 if held:
                held[at : at + 1] = bytes((rng.randrange(256),))
            case 2:
                number = rng.choice((0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, len(held)))
                held[at : at + 8] = struct.pack("<Q", number)
            case 3:
                held[at:at] = rng.randbytes(rng.randrange(16))
            case _:
                del held[at : at + rng.randrange(16)]
        if not held:
            break
    return bytes(held)
