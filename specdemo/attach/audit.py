"""Compares the answers of a server that drafts with those of one that does not.

Equal texts at temperature 0 are the wrong test: a pass of several rows rounds differently, and so do other requests at the
same time. Where the texts part, rounding can only swap tokens that are almost equally likely:

    plain    The cat sat on the mat      plain server after "The cat sat on":  the 0.41, a 0.40: a gap of 0.02 nat
    drafts   The cat sat on a mat        so this difference is rounding

At temperature 1 every token of an answer is compared with the plain server's probabilities after the same text: how often
it is the most likely one is a sum of known chances, whatever was drawn before. That needs two llama-servers. Of others
the texts are compared: drawn with the same seeds if these determine them, else by their frequencies.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from math import erfc, exp, sqrt
from operator import ne
from typing import Any

from specdemo.attach.llama_server import LlamaServer
from specdemo.attach.openai import OpenAIServer, body_of
from specdemo.attach.rounds import Generation
from specdemo.attach.servers import Request, Server, whole_answer
from specdemo.config.errors import UserError
from specdemo.config.settings import Sampling
from specdemo.config.strings import Json

ROUNDING = 0.25  # nat: rounding swaps tokens whose gap is smaller; 0.18 is the largest gap that was measured
FAULT = 0.5  # nat: no rounding swaps tokens with a larger gap
LEVEL = 0.01  # probability that a correct server is found biased
FOUND = 2.576 + 1.282  # deviations of a bias that is found in nine of ten tests at LEVEL
CANDIDATES = 8  # most likely tokens that the plain server reports

SEEDS = (
    40  # answers with the same seeds on both servers that decide whether seeds determine the text
)
SHORT = 4  # tokens of an answer that is drawn for its frequency
CELL = 8  # characters of such an answer that are counted
FEWEST_IN_CELL = 5  # answers of a cell; rarer ones are counted together


@dataclass(frozen=True, slots=True)
class Difference:
    """First difference of two answers.

    place: index of the token; gap: nat between the two tokens by the plain server, at least; prompt: its index
    """

    place: int
    gap: float
    prompt: int = 0

    @property
    def verdict(self) -> str:
        """`rounding`, `unclear` or `fault`."""
        return "rounding" if self.gap < ROUNDING else "fault" if self.gap > FAULT else "unclear"


@dataclass(frozen=True, slots=True)
class GreedyComparison:
    """Answers at temperature 0. tokens: compared ones, up to the first difference of each answer"""

    prompts: int
    tokens: int
    differences: tuple[Difference, ...]

    @property
    def verdict(self) -> str:
        """`held`, `lossy` or `unclear`."""
        found = {one.verdict for one in self.differences}
        return "lossy" if "fault" in found else "unclear" if "unclear" in found else "held"

    def values(self) -> Json:
        """Return the values of the verdict's sentence."""
        gap = max((one.gap for one in self.differences), default=0.0)
        equal = self.prompts - len(self.differences)
        return {"prompts": self.prompts, "equal": equal, "gap": gap, "rounding": ROUNDING, "fault": FAULT}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bias:
    """Test of sampled tokens. expected: mean chance of the plain server's most likely token; found: how often it was drawn

    smallest: bias that the test would have found in nine of ten cases
    """

    tokens: int
    expected: float
    found: float
    p_value: float
    smallest: float

    @property
    def held(self) -> bool:
        """Whether chance explains the difference."""
        return self.p_value >= LEVEL

    @property
    def kind(self) -> str:
        """`unbiased` or `biased`."""
        return "unbiased" if self.held else "biased"

    def values(self) -> Json:
        """Return the values of the verdict's sentence, fractions in percent."""
        shown = {name: 100 * getattr(self, name) for name in ("expected", "found", "smallest")}
        return {"tokens": self.tokens, "p_value": self.p_value, **shown}


@dataclass(frozen=True, slots=True)
class DrawComparison:
    """Comparison of short answers at temperature 1.

    equal: fraction of equal answers with the same seeds; p_value: of the frequencies with other seeds, if these were needed
    smallest: total variation of a bias that would have been found in nine of ten cases; with the same seeds its upper limit
    """

    samples: int
    equal: float
    p_value: float | None
    smallest: float

    @property
    def held(self) -> bool:
        """Whether chance explains the difference."""
        return self.p_value is None or self.p_value >= LEVEL

    @property
    def kind(self) -> str:
        """`seeded`, `same_draws` or `other_draws`."""
        return "seeded" if self.p_value is None else "same_draws" if self.held else "other_draws"

    def values(self) -> Json:
        """Return the values of the verdict's sentence; fractions in percent."""
        percent = {"equal": 100 * self.equal, "smallest": 100 * self.smallest}
        return {"samples": self.samples, "p_value": self.p_value, **percent}


def token_ids(answer: Generation) -> list[int | None]:
    """Return the ids of an answer's tokens; None if the server delayed the token's text."""
    rounds = [piece for each in answer.rounds for piece in each.committed]
    return [piece.token_id for piece in (*answer.first, *rounds)]


def difference(plain: LlamaServer, expected: Generation, answer: Generation) -> Difference | None:
    """Return the first difference of an answer from the plain server's own; None if there is none. Raises UserError."""
    theirs, ours = token_ids(expected), token_ids(answer)
    place = next((n for n, pair in enumerate(zip(theirs, ours, strict=False)) if pair[0] != pair[1]), None)  # fmt: skip
    if place is None:
        place = min(len(theirs), len(ours))
        if len(theirs) == len(ours) or {expected.finish, answer.finish} == {"length"}:
            return None
    known = [one for one in theirs[:place] if one is not None]
    if len(known) < place:
        raise UserError("servers.no_ids")
    likely = most_likely(plain, expected.prompt, known)
    chances: dict[int | None, float] = dict(likely)
    # An answer may end here instead: its end is a token without an id, and the plain server's is its most likely token.
    mine = chances.get(theirs[place], likely[0][1]) if place < len(theirs) else likely[0][1]
    other = chances.get(ours[place], likely[-1][1]) if place < len(ours) else likely[1][1]
    return Difference(place, abs(mine - other))


def text_difference(plain: OpenAIServer, request: Request, answer: Generation) -> Difference | None:
    """Return the first difference of an answer's text from the plain server's; None if there is none. Raises UserError."""
    body = body_of(request, plain.about.model) | {"logprobs": True, "top_logprobs": CANDIDATES}
    rows: list[Json] = []
    text, rest = "", answer.text.encode()
    try:
        for chunk in plain.client.stream("/v1/chat/completions", body, threading.Event()):
            for choice in chunk.get("choices", []):
                text += choice["delta"].get("content") or ""
                rows += (choice.get("logprobs") or {}).get("content") or []
        if text == answer.text and rows:
            return None
        for place, row in enumerate(rows):
            token = _token_bytes(row)
            if rest.startswith(token):
                rest = rest[len(token) :]
                continue
            listed = row["top_logprobs"]
            if not rest:
                break
            mine = [
                one for one in listed if (token := _token_bytes(one)) and rest.startswith(token)
            ]
            # A token outside of the list is at most as likely as the last one.
            chance = max(one["logprob"] for one in mine) if mine else min(one["logprob"] for one in listed)  # fmt: skip
            return Difference(place, abs(float(row["logprob"]) - float(chance)))
    except (AttributeError, KeyError, TypeError, ValueError):
        rows = []
    if not rows:
        raise UserError("servers.no_probabilities", url=plain.client.url)
    return Difference(
        len(rows), ROUNDING
    )  # one ends where the other continues: how likely is unknown


def _token_bytes(row: Json) -> bytes:
    """Return a token; its text may lack a part of a character."""
    return bytes(row["bytes"]) if row.get("bytes") else str(row["token"]).encode()


def greedy_audit(
    server: Server,
    plain: Server,
    prompts: Sequence[str],
    tokens: int,
    report: Callable[[float], None],
) -> GreedyComparison:
    """Compare the answers of both servers at temperature 0. Raises UserError."""
    found, compared = list[Difference](), 0
    for number, prompt in enumerate(prompts):
        report(number / len(prompts))
        request = Request([{"role": "user", "content": prompt}], tokens)
        if isinstance(server, LlamaServer) and isinstance(plain, LlamaServer):
            answer = whole_answer(server, request)
            apart = difference(plain, whole_answer(plain, request), answer)
        else:
            answer = whole_answer(comparable(server), request)
            apart = text_difference(comparable(plain), request, answer)
        compared += apart.place if apart else answer.tokens
        found += [replace(apart, prompt=number)] if apart else []
    return GreedyComparison(len(prompts), compared, tuple(found))


def most_likely(plain: LlamaServer, prompt: str, ids: Sequence[int]) -> list[tuple[int, float]]:
    """Return the plain server's most likely tokens after a prompt and tokens, with natural logarithms of their chances."""
    body = {
        "prompt": [prompt, *ids],
        "n_predict": 1,
        "temperature": 0,
        "n_probs": CANDIDATES,
        "cache_prompt": True,
    }
    rows: Any = plain.client.post("/completion", body).get("completion_probabilities")
    try:
        found = [(int(one["id"]), float(one["logprob"])) for one in rows[0]["top_logprobs"]]
    except (TypeError, KeyError, IndexError, ValueError):
        found = []
    if len(found) < 2:
        raise UserError("servers.no_probabilities", url=plain.client.url)
    return sorted(found, key=lambda one: -one[1])


def sampled_bias(
    server: LlamaServer,
    plain: LlamaServer,
    requests: Iterator[Request],
    tokens: int,
    report: Callable[[float], None],
) -> Bias:
    """Compare tokens that a server drew at temperature 1 with the plain server's chances. Raises UserError.

    The first token of an answer comes from the prompt's pass, which drafts nothing, so it is left out.
    """
    count, expected, variance, found = 0, 0.0, 0.0, 0
    while count < tokens:
        answer = whole_answer(server, next(requests))
        ids = token_ids(answer)
        for place in range(1, len(ids)):
            before = [one for one in ids[:place] if one is not None]
            if len(before) < place or ids[place] is None or count == tokens:
                break
            token, logarithm = most_likely(plain, answer.prompt, before)[0]
            chance = min(1.0, exp(logarithm))
            count, expected = count + 1, expected + chance
            variance += chance * (1 - chance)
            found += token == ids[place]
            report(count / tokens)
        if len(ids) < 2:
            raise UserError("servers.no_ids")
    spread = sqrt(variance) or 1e-9
    p_value = erfc(abs(found - expected) / spread / sqrt(2))
    return Bias(count, expected / count, found / count, p_value, FOUND * spread / count)


def sampled(prompt: str, tokens: int, seed: int) -> Request:
    """Return a request whose tokens are drawn from the target's own distribution, without any filter."""
    message = {"role": "user", "content": prompt}
    return Request([message], tokens, Sampling(temperature=1.0, seed=seed))


def comparable(server: Server) -> OpenAIServer:
    """Return a server that is compared by its texts. Raises UserError for a llama-server: both must be of one kind."""
    if not isinstance(server, OpenAIServer):
        raise UserError("servers.not_comparable", server=server.about.server)
    return server


def compare_draws(
    server: Server,
    plain: Server,
    prompts: Sequence[str],
    samples: int,
    report: Callable[[float], None],
) -> DrawComparison:
    """Compare short answers at temperature 1, each prompt equally often. Raises UserError.

    If the same seeds nearly always give the same text, the fraction of different ones bounds any bias. Otherwise the plain
    server gets other seeds, since samples with the same seeds are not independent.
    """

    def draw(one: Server, count: int, seed: int) -> list[tuple[str, str]]:
        answers = []
        for number, prompt in enumerate(islice(cycle(prompts), count)):
            report(number / count)
            answer = whole_answer(one, sampled(prompt, SHORT, seed + number))
            answers.append((prompt, answer.text[:CELL]))
        return answers

    few = min(SEEDS, samples)
    apart = sum(map(ne, draw(server, few, 0), draw(plain, few, 0)))
    seeded = apart <= few / 10
    drawn, expected = draw(server, samples, 0), draw(plain, samples, 0 if seeded else samples)
    if seeded:
        apart = sum(map(ne, drawn, expected))
        return DrawComparison(samples, 1 - apart / samples, None, upper_limit(apart, samples))
    p_value, freedom = same_frequencies(drawn, expected)
    least = sqrt(_noncentrality(freedom) / (2 * samples))
    return DrawComparison(samples, 1 - apart / few, p_value, least)


Answers = Sequence[tuple[str, str]]  # prompt and text


def same_frequencies(one: Answers, two: Answers) -> tuple[float, int]:
    """Return the chi-square probability that answers of two samples have the same frequencies, and degrees of freedom."""
    both = Counter([*one, *two])
    often = {cell for cell, count in both.items() if count >= 2 * FEWEST_IN_CELL}
    first, second = (
        Counter((prompt, text if (prompt, text) in often else None) for prompt, text in each)
        for each in (one, two)
    )
    found = [(first[cell], second[cell]) for cell in {*first, *second}]
    freedom = len(found) - len({prompt for prompt, _ in one})
    if freedom < 1:
        return 1.0, 1
    statistic = sum((a - b) ** 2 / (a + b) for a, b in found)
    # Wilson and Hilferty 1931: the cube root of a chi-square value is nearly normal.
    spread = 2 / (9 * freedom)
    return erfc(((statistic / freedom) ** (1 / 3) - 1 + spread) / sqrt(2 * spread)) / 2, freedom


def _noncentrality(freedom: int) -> float:
    """Return the noncentrality that a chi-square test at LEVEL finds in nine of ten cases, by a normal approximation."""
    spread = 2 / (9 * freedom)
    above = freedom * (1 - spread + 2.326 * sqrt(spread)) ** 3 - freedom
    power = 1.282**2
    return above + 2 * power + sqrt(4 * power * above + 4 * power**2 + 2 * freedom * power)


def upper_limit(successes: int, trials: int) -> float:
    """Return the upper end of Wilson's interval of 95 % for a chance."""
    z, share = 1.96, successes / trials
    middle = share + z * z / (2 * trials)
    width = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return (middle + width) / (1 + z * z / trials)
