"""Rounds of another server and the sums that they must agree with."""

from __future__ import annotations

import pytest

from specdemo.attach.servers import Generation, Piece, Round
from specdemo.trace.events import Knowledge


def a_round(length: int, drafted: int, accepted: int) -> Round:
    return Round(tuple(Piece("x", 1) for _ in range(length)), drafted, accepted, 0.1)


@pytest.mark.parametrize(
    ("rounds", "totals", "wrong"),
    [
        ([a_round(3, 5, 2), a_round(1, 0, 0)], (5, 2), []),
        ([a_round(3, 5, 2), a_round(2, 5, 3)], (10, 5), []),  # the limit cut the last round
        ([a_round(2, 5, 2), a_round(1, 0, 0)], (5, 2), ["length"]),
        ([a_round(3, 5, 2), a_round(3, 5, 1)], (10, 3), ["length"]),
        ([a_round(3, 5, 2)], (6, 2), ["drafted"]),
        ([a_round(3, 5, 2)], (5, 3), ["accepted"]),
        ([Round((Piece("x"),))], (20, 17), []),  # rounds without numbers contradict nothing
    ],
)
def test_rounds_are_compared_with_the_servers_sums(
    rounds: list[Round], totals: tuple[int, int], wrong: list[str]
) -> None:
    drafted, accepted = totals
    found = Generation(
        "llama-server",
        "",
        Knowledge.EXACT,
        (Piece("a", 2),),
        tuple(rounds),
        drafted=drafted,
        accepted=accepted,
    )
    assert found.mismatches() == wrong
    assert found.tokens == 1 + sum(len(each.committed) for each in rounds)
    assert found.text == "a" + "x" * (found.tokens - 1)
