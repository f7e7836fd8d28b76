"""Tuning: a replay equals the recording, and the true speedup of simulated servers lies in the stated interval."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from operator import mul
from pathlib import Path

import numpy as np
import pytest

from specdemo.attach.records import Record
from specdemo.attach.servers import Generation, Part, Piece, Request, Round, ask
from specdemo.attach.tuning import DraftSetting, ask_in_turn, break_even, plan, replay
from specdemo.cli.parser import main
from specdemo.config.errors import UserError
from specdemo.trace.events import Choice, Knowledge
from tests.attach.recorded import LOG
from tests.attach.stand_in import simulated, true_seconds

LONGEST, TOKENS, REQUESTS = 8, 64, 10
SECONDS = (0.014, 0.034, 0.054, 0.066, 0.08, 0.09, 0.1, 0.11, 0.12)  # of a round by drafted tokens


def record(name: str, rounds: list[Round]) -> Record:
    return Record(name, generation=Generation("s", "", Knowledge.EXACT, rounds=tuple(rounds)))


class Machine:
    """Simulated machine of several servers, which is a third slower for some seconds again and again."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.slow, self.clock, self.changes = rng, False, 0.0, 0.0

    def spend(self, seconds: float) -> float:
        """Return this duration at the current speed of the machine."""
        while self.clock >= self.changes:
            self.slow, self.changes = not self.slow, self.changes + self.rng.exponential(5)
        spent = seconds * (1.33 if self.slow else 1.0) * self.rng.lognormal(0, 0.05)
        self.clock += spent
        return spent


class Server:
    """Simulated server. chances: that the token at each position of a draft is accepted if it is reached, none without drafts"""

    def __init__(self, machine: Machine, chances: list[float]) -> None:
        self.machine, self.chances = machine, chances

    def stream(self, request: Request, _cancel: threading.Event) -> Iterator[Part]:
        """Answer with as many tokens as the limit allows."""
        draw = self.machine.rng.random
        rounds = simulated(request.max_new_tokens, self.chances, draw, self.seconds)
        yield Generation("s", "", Knowledge.EXACT, (Piece("", 1),), rounds)

    def seconds(self, drafted: int) -> float:
        return self.machine.spend(SECONDS[drafted])

    def speedup(self, n_max: int) -> float:
        """Return the exact speedup over plain decoding, for many answers."""
        rates = list(accumulate(self.chances[:n_max], mul))
        return (TOKENS - 1) * SECONDS[0] / true_seconds(rates, TOKENS, SECONDS.__getitem__)


def test_the_true_speedup_lies_in_the_interval_and_the_choice_is_near_the_best() -> None:
    inside, near, widths = 0, 0, list[float]()
    for seed in range(50):
        rng = np.random.default_rng(seed)
        machine = Machine(rng)
        chances = list(rng.uniform(0.3, 0.95) * rng.uniform(0.8, 1) ** np.arange(LONGEST))
        server, plain = Server(machine, chances), Server(machine, [])
        found = plan(*ask_in_turn(server, plain, [ask("", TOKENS)] * REQUESTS), assumption="positions")  # fmt: skip
        for n_max in (2, 4, 6, 8):
            said = found.at(DraftSetting(n_max)).over_plain
            inside += said.low <= server.speedup(n_max) <= said.high
            widths.append((said.high - said.low) / 2 / said.value)
        speeds = [server.speedup(n) for n in range(1, LONGEST + 1)]
        near += server.speedup(found.best.setting.n_max) >= 0.97 * max(speeds)
    assert inside >= 0.85 * 200
    assert near >= 48
    assert np.mean(widths) < 0.1


def test_a_plan_draws_plain_requests_of_another_time_independently_and_leaves_out_merged_rounds() -> None:  # fmt: skip
    machine = Machine(np.random.default_rng(1))
    server, plain = Server(machine, [0.5, 0.5]), Server(machine, [])
    drafted, bare = ask_in_turn(server, plain, [ask("", TOKENS)] * 6)
    later = [replace(one, name=f"later {n}") for n, one in enumerate(bare[:3])]
    merged = record("merged", [Round((), 4, 1, 0.1), Round((), 0, 0, 0.0)])
    found = plan([*drafted, merged], later, assumption="positions")
    assert (found.requests, found.current.n_max) == (6, 2)
    said = found.at(found.current).over_plain
    paired = plan(drafted, bare, assumption="positions").at(found.current).over_plain
    assert said.high - said.low > paired.high - paired.low > 0


def answer(name: str, right: list[bool], chances: list[float], n_max: int, p_min: float) -> Record:  # fmt: skip
    """Return the rounds of a greedy draft; the text decides which of its tokens are right."""
    rounds, at = list[Round](), 0
    while at < len(right):
        room = min(n_max, len(right) - at - 1)
        shown = chances[at : at + room]
        drafted = next((n for n, chance in enumerate(shown) if chance < p_min), room)
        rest = right[at : at + drafted]
        accepted = rest.index(False) if False in rest else drafted
        candidates = tuple((Choice(1, chance),) for chance in shown[: drafted + 1])
        steps, spent = len(candidates), 0.04 + 0.004 * drafted
        seconds = spent + 0.005 * steps
        pieces = (Piece("", 1),) * (accepted + 1)
        rounds.append(Round(pieces, drafted, accepted, seconds, 0.005 * steps, candidates))
        at += accepted + 1
    return record(name, rounds)


def test_a_replay_over_the_text_bounds_what_other_settings_would_do() -> None:
    rng = np.random.default_rng(1)
    texts = []
    for number in range(16):
        chances = list(rng.beta(2, 0.7, TOKENS))
        texts.append((str(number), [bool(rng.random() < chance) for chance in chances], chances))
    recorded = [answer(*text, LONGEST, 0.0) for text in texts]
    found = plan(recorded, assumption="places")
    same = found.at(DraftSetting(LONGEST))
    assert (same.over_current.low, same.over_current.high) == (1, 1)
    inside = 0
    for setting in (DraftSetting(2), DraftSetting(4), DraftSetting(6), DraftSetting(8, 0.5), DraftSetting(8, 0.9), DraftSetting(4, 0.7)):  # fmt: skip
        after = [answer(*text, setting.n_max, setting.p_min) for text in texts]
        speeds = [
            sum(len(each.committed) for each in rounds) / sum(each.seconds or 0 for each in rounds)
            for rounds in (
                [each for one in run if one.generation for each in one.generation.rounds]
                for run in (recorded, after)
            )
        ]
        guess = found.at(setting)
        assert guess.setting == setting
        inside += guess.over_current.low <= speeds[1] / speeds[0] <= guess.over_current.high
    assert inside >= 5


def test_a_replay_counts_rounds_of_a_text_by_hand() -> None:
    """Text a b c d e f with the draft right everywhere but at d; five drafts were made, and one at the limit."""
    rounds = [Round((), 5, 3), Round((), 1, 1)]
    assert list(replay(rounds, DraftSetting(5), right=True)) == [(5, 3, 0), (1, 1, 0)]
    assert list(replay(rounds, DraftSetting(2), right=True)) == [(2, 2, 0), (2, 0, 0), (1, 1, 0)]


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        ([record(name, [Round((), 2, 2, 0.1)]) for name in "abc"], "3 requests"),
        ([record("one", [Round((), 2, 2, 0.1)])] * 4, "1 requests"),
        ([record(name, [Round((), 2, 2)]) for name in "abcd"], "time"),
        ([record(name, [Round((), 2, 2, 0.1)]) for name in "abcd"], "time"),
    ],
)
def test_a_plan_needs_requests_and_times(recorded: list[Record], message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan(recorded)


def test_break_even_of_a_pair_before_it_is_downloaded() -> None:
    rows = break_even(10e9, 1e9, 4)
    assert [row[1] for row in rows] == pytest.approx([1.1, 1.2, 1.3, 1.4])
    assert rows[0][2] == pytest.approx(0.1)
    assert rows[3][3] == pytest.approx((1 + 0.8 + 0.64 + 0.512 + 0.4096) / 1.4)
    assert all(np.isnan(row[2]) for row in break_even(1e9, 2e9, 4))


def test_tune_recommends_flags_and_confirms_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    text = LOG.read_text(encoding="utf-8")
    log, plain = tmp_path / "log", tmp_path / "plain"
    log.write_text("".join(text.replace("task 0", f"task {n}") for n in range(4)), encoding="utf-8")
    plain.write_text("".join(f"slot print_timing: id 0 | task {n} | eval time = 4000 ms / 97 tokens\n" for n in range(3)))  # fmt: skip
    assert main(["tune", str(log), "--plain", str(plain), "--confirm", str(log)]) == 0
    printed = capsys.readouterr()
    assert "Recommended: --spec-draft-n-max 3 --spec-draft-p-min 0.5\nThe interval contains 1" in printed.out  # fmt: skip
    assert "`--spec-draft-n-max 5 --spec-draft-p-min 0` (recorded) | 5.22 |" in printed.out
    assert "1.00 times the recorded speed was measured" in printed.out
    assert "4 requests with 36 rounds (assumption: places)" in printed.err
    assert main(["tune", "--sizes", "4.7", "0.4"]) == 0
    assert "| 1 | 1.09 | 9% | 1.66 |" in capsys.readouterr().out
