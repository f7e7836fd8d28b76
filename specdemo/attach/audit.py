"""Compares the answers of a server that drafts with those of one that does not.

Equal texts at temperature 0 are the wrong test: a pass of several rows rounds differently, and so do other requests at the
same time. Where the texts part, rounding can only swap tokens that are almost equally likely:

    plain    The cat sat on the mat      plain server after "The cat sat on":  the 0.41, a 0.40: a gap of 0.02 nat
    drafts   The cat sat on a mat        so this difference is rounding

Answers at temperature 1 are drawn with the same seeds if these determine them, else their frequencies are compared. Both
work on the texts, so servers of every kind are compared in the same way, llama-servers too.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from math import erfc, sqrt
from operator import ne

from specdemo.attach.openai import body_of
from specdemo.attach.servers import Generation, Request, Server, ask, whole_answer
from specdemo.config.errors import UserError
from specdemo.config.settings import Sampling
from specdemo.config.strings import Json

ROUNDING = 0.25  # nat: rounding swaps tokens whose gap is smaller; 0.18 is the largest gap that was measured
FAULT = 0.5  # nat: no rounding swaps tokens with a larger gap
LEVEL = 0.01  # probability that a correct server is found biased
CANDIDATES = 8  # most likely tokens that the plain server reports
SHORT = 4  # tokens of an answer that is drawn for its frequency
CELL = 8  # characters of such an answer that are counted
FEWEST_IN_CELL = 5  # answers of a cell; rarer ones are counted together


@dataclass(frozen=True, slots=True)
class Difference:
    """First difference between the answers of two servers to the same prompt.

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


def difference(plain: Server, request: Request, answer: Generation) -> Difference | None:
    """Return the first difference of an answer's text from the plain server's; None if there is none. Raises UserError."""
    body = body_of(request, plain.about.model) | {"logprobs": True, "top_logprobs": CANDIDATES}
    rows: list[Json] = []
    text = ""
    try:
        for chunk in plain.client.stream("/v1/chat/completions", body, threading.Event()):
            for choice in chunk.get("choices", []):
                text += choice["delta"].get("content") or ""
                rows += (choice.get("logprobs") or {}).get("content") or []
        if not rows:
            raise UserError("servers.no_probabilities", url=plain.client.url)
        return None if text == answer.text else _first_difference(rows, answer)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError("servers.no_probabilities", url=plain.client.url) from None


def _first_difference(rows: Sequence[Json], answer: Generation) -> Difference | None:
    """Return the first difference of an answer from tokens with their likeliest alternatives."""
    rest = answer.text.encode()
    for place, row in enumerate(rows):
        token, listed = _token_bytes(row), row["top_logprobs"]
        if rest and rest.startswith(token):
            rest = rest[len(token) :]
            continue
        chances = sorted((float(one["logprob"]) for one in listed), reverse=True)
        if not rest:  # the end of an answer is a token without a text; here it is at most the second likeliest
            cut = answer.finish == "length"
            return None if cut or not token else Difference(place, chances[0] - chances[1])
        if token not in map(
            _token_bytes, listed
        ):  # a character of several tokens: which one differs is unknown
            return Difference(place, ROUNDING)
        mine = [one for one in listed if (other := _token_bytes(one)) and rest.startswith(other)]
        # A token outside of the list is at most as likely as the last one.
        chance = max((float(one["logprob"]) for one in mine), default=chances[-1])
        return Difference(place, abs(float(row["logprob"]) - chance))
    # The plain server ends where the answer continues: how likely that is it does not tell.
    return Difference(len(rows), ROUNDING) if rest else None


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
        request = ask(prompt, tokens)
        answer = whole_answer(server, request)
        apart = difference(plain, request, answer)
        compared += apart.place if apart else answer.tokens
        found += [replace(apart, prompt=number)] if apart else []
    return GreedyComparison(len(prompts), compared, tuple(found))


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

    def draw(one: Server, seed: int) -> list[tuple[str, str]]:
        answers = []
        for number, prompt in enumerate(islice(cycle(prompts), samples)):
            report(number / samples)
            answer = whole_answer(
                one, ask(prompt, SHORT, Sampling(temperature=1.0, seed=seed + number))
            )
            answers.append((prompt, answer.text[:CELL]))
        return answers

    drawn, expected = draw(server, 0), draw(plain, 0)
    apart = sum(map(ne, drawn, expected))
    if apart <= samples / 10:
        return DrawComparison(samples, 1 - apart / samples, None, upper_limit(apart, samples))
    expected = draw(plain, samples)
    p_value, freedom = same_frequencies(drawn, expected)
    least = sqrt(_noncentrality(freedom) / (2 * samples))
    return DrawComparison(samples, 1 - apart / samples, p_value, least)


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
