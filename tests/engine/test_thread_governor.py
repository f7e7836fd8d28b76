"""One thread computes while other processes use the cores, and all threads afterwards."""

from types import SimpleNamespace

import pytest
import torch

from specdemo.engine.runner import CROWDED, RETRY, ThreadGovernor

QUIET, SLOW = 0.01, 0.01 * 4 * CROWDED
DECODER = object()


def requests(count: int = 1, place: int = 10):
    rows = SimpleNamespace(depth=None, token_ids=[0] * count, positions=range(place, place + count))
    return [SimpleNamespace(decoder=DECODER, input=rows)]


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_it_goes_alone_while_passes_are_slow_and_tries_again():
    governor = ThreadGovernor()
    for _ in range(50):
        governor.observe(requests(), QUIET)
    assert torch.get_num_threads() == 2
    governor.observe(requests(), SLOW)
    for _ in range(2):  # one slow pass is nothing, and when it tries again, two suffice to decide
        for _ in range(2):
            assert torch.get_num_threads() == 2
            governor.observe(requests(), SLOW)
        for _ in range(RETRY):
            assert torch.get_num_threads() == 1
            governor.observe(requests(), 2 * QUIET)
    for _ in range(50):
        governor.observe(requests(), QUIET)
        assert torch.get_num_threads() == 2


def test_all_threads_go_on_where_one_alone_takes_longer():
    """Other processes use the memory bandwidth: passes are slow with any number of threads, and slower with one."""
    governor, alone = ThreadGovernor(), 0
    for _ in range(20):
        governor.observe(requests(), QUIET)
    for number in range(400):
        single = torch.get_num_threads() == 1
        alone += single
        governor.observe(requests(), QUIET * (3.0 if single else 2.2 if number % 2 else 2.5))
    assert 0 < alone < 100


def test_passes_of_other_sizes_are_not_compared():
    governor = ThreadGovernor()
    for _ in range(20):
        governor.observe(requests(), QUIET)
        governor.observe(requests(count=60), SLOW)
        governor.observe(requests(place=3000), SLOW)
    assert torch.get_num_threads() == 2


def test_one_thread_stays_one():
    torch.set_num_threads(1)
    governor = ThreadGovernor()
    for seconds in (QUIET, *[SLOW] * 20):
        governor.observe(requests(), seconds)
    assert torch.get_num_threads() == 1


def test_thirty_runs_together_are_few_kinds_of_passes_and_a_crowd_is_seen_among_them():
    """Their contexts grow with each pass; each of them a kind of its own would compare with nothing, and stay in memory."""

    def passes(step):
        return [one for run in range(30) for one in requests(place=97 * run + step)]

    governor = ThreadGovernor()
    for step in range(1000):
        governor.observe(passes(step), QUIET)
    assert len(governor._fastest) < 20
    for step in range(1000, 1004):
        governor.observe(passes(step), SLOW)
    assert torch.get_num_threads() == 1
