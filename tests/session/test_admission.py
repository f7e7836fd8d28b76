"""The queue in front of the engine: fairness between users, immediate leaving, exact positions and estimates."""

import threading
from contextlib import ExitStack

import pytest
from conftest import Clock

from specdemo.config.errors import UserError
from specdemo.session import admission
from specdemo.session.admission import Admission, Cancel, Turn, Waiting

WAIT = 10.0


class Line:
    """An admission whose turns are entered in this thread, in order."""

    def __init__(self, capacity=1, **options):
        self.capacity, self.clock = capacity, Clock(1000.0)
        self.admission = Admission(lambda: self.capacity, clock=self.clock, **options)
        self.order = []

    def join(self, visitor, kind="run", cancel=None):
        turn = Turn(self.admission, visitor, kind, cancel or Cancel())
        self.admission.join(turn)
        return turn

    def leave(self, turn):
        self.admission.leave(turn)

    def run(self, visitor, seconds, kind="run"):
        """Run once without waiting, for this many seconds."""
        turn = self.join(visitor, kind)
        assert turn.admitted
        self.clock.now += seconds
        self.leave(turn)

    def served(self, turns):
        """Visitors in the order in which they are let in, each for one second."""
        order, left = [], list(turns)
        while left:
            going = [turn for turn in left if turn.admitted]
            order += [turn.visitor for turn in going]
            for turn in going:
                left.remove(turn)
                self.leave(turn)
        return "".join(order)


def place(turn):
    return next(iter(turn))


def test_a_visitor_who_was_served_waits_behind_those_who_were_not():
    line = Line()
    turns = [line.join("a"), line.join("b"), line.join("c")]
    line.leave(turns.pop(0))
    turns.append(line.join("a"))
    assert line.served(turns) == "bca"


def test_no_visitor_has_more_than_a_share_while_others_wait():
    line = Line(capacity=3)
    many = [line.join("a") for _ in range(4)]
    other = line.join("b")
    assert other.admitted  # one slot stays free for the next arrival
    assert sum(turn.admitted for turn in many) == 2
    third, fourth = line.join("c"), line.join("d")
    line.leave(many[0])
    assert third.admitted
    line.leave(many[1])
    assert fourth.admitted
    assert not any(turn.admitted for turn in many[2:])


def test_alone_a_visitor_has_all_places_but_one():
    line = Line(capacity=4)
    assert sum(line.join("a").admitted for _ in range(9)) == 3
    assert line.join("b").admitted


def test_a_kind_has_a_limit_of_its_own_and_holds_no_other_up():
    line = Line(capacity=4, limits={"timed": 1})
    race, second = line.join("a", "timed"), line.join("b", "timed")
    run, other = line.join("c"), line.join("b")  # also the same visitor's
    assert [turn.admitted for turn in (race, second, run, other)] == [True, False, True, True]
    assert place(second) == Waiting(1, 1, None)
    line.leave(other)
    line.leave(race)
    assert second.admitted


def test_place_and_seconds_follow_from_recent_runs():
    line = Line(capacity=2)
    line.run("z", 10)
    line.run("z", 20)
    going = [line.join("a"), line.join("b")]
    line.clock.now += 5
    # Runs aged five seconds lasted 15 on average, so 10 remain. The third also waits for a run of 15.
    waiting = [line.join(visitor) for visitor in "cde"]
    assert [place(turn) for turn in waiting] == [
        Waiting(1, 3, 10.0), Waiting(2, 3, 10.0), Waiting(3, 3, 25.0),
    ]  # fmt: skip
    # At this age the runs of ten seconds have ended, and those of twenty have eight left.
    line.clock.now += 7
    assert place(waiting[0]) == Waiting(1, 3, 8.0)
    line.leave(going[0])
    assert waiting[0].admitted
    assert place(waiting[1]).place == 1


def test_visitors_are_served_in_turn_and_each_request_knows_its_place():
    line = Line()
    first = line.join("z")
    turns = [line.join(visitor) for visitor in "aaaabbc"]
    assert [place(turn).place for turn in turns] == [1, 4, 6, 7, 2, 5, 3]
    line.leave(first)
    assert line.served(turns) == "abcabaa"


def test_capacity_may_change():
    line = Line(capacity=1)
    first, second, third = (line.join(visitor) for visitor in "abc")
    line.capacity = 2
    assert list(second) == []  # found by the next poll
    line.capacity = 3
    assert list(third) == []
    line.capacity = 0
    line.leave(first)
    fourth = line.join("d")
    assert place(fourth) == Waiting(1, 1, None)
    assert not fourth.admitted


def test_a_full_line_refuses_and_keeps_nothing():
    line = Line(most_waiting=2)
    going, waiting, _ = (line.join(visitor) for visitor in "abc")
    line.join("b")  # a waiting user may add requests
    with pytest.raises(UserError, match="queue is full"):
        line.join("d")
    assert line.admission.waiting == 3
    line.leave(going)
    assert waiting.admitted
    with pytest.raises(UserError, match="queue is full"):
        line.join("d")
    line.leave(waiting)
    line.join("d")
    assert line.admission.waiting == 2


def test_without_a_line_there_is_room_or_none():
    line = Line(most_waiting=0)
    assert line.join("a").admitted
    with pytest.raises(UserError, match="queue is full"):
        line.join("b")


def test_a_cancelled_request_leaves_the_line_at_once(monkeypatch):
    monkeypatch.setattr(admission, "UPDATE_SECONDS", 3600.0)
    line, cancel = Line(), Cancel()
    line.join("a")
    turn, behind = line.join("b", cancel=cancel), line.join("c")
    left = threading.Event()
    seen = []

    def wait():
        seen.extend(turn)
        left.set()

    thread = threading.Thread(target=wait)
    # Nothing but the cancellation wakes the thread.
    thread.start()
    while not seen:
        pass
    cancel.set()
    assert left.wait(WAIT)
    thread.join(WAIT)
    assert not turn.admitted
    assert place(behind).place == 1
    line.leave(turn)  # its block ends later
    assert line.admission.waiting == 1


def test_closing_the_wait_leaves_the_line():
    line = Line()
    line.join("a")
    with line.admission.turn("b") as turn:
        waits = iter(turn)
        next(waits)
        waits.close()
    assert line.admission.waiting == 0


def test_a_running_request_keeps_its_place_when_it_is_cancelled():
    line, cancel = Line(), Cancel()
    with line.admission.turn("a", cancel=cancel) as turn:
        cancel.set()
        assert list(turn) == []
        assert turn.admitted
        assert line.admission.running == 1
    assert line.admission.running == 0


def test_an_error_in_the_block_gives_the_place_back():
    line = Line()
    with pytest.raises(RuntimeError), line.admission.turn("a"):
        raise RuntimeError
    assert line.join("b").admitted


def test_thirty_visitors_at_once_never_exceed_the_limits_and_none_starves():
    admission, lock = Admission(lambda: 4), threading.Lock()
    held, most, served = 0, 0, []

    def visit(visitor):
        nonlocal held, most
        for _ in range(5):
            with admission.turn(visitor) as turn:
                for _ in turn:
                    pass
                with lock:
                    held += 1
                    most = max(most, held)
                    served.append(visitor)
                with lock:
                    held -= 1

    with ExitStack() as stack:
        for visitor in range(30):
            thread = threading.Thread(target=visit, args=(visitor,))
            thread.start()
            stack.callback(thread.join, WAIT)
    assert len(served) == 150
    assert 1 <= most <= 4
    assert (admission.waiting, admission.running) == (0, 0)
