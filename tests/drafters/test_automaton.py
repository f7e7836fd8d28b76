"""The suffix automaton against brute force, and the n-gram drafter that copies by it."""

import random

import pytest

from specdemo.drafters.copies import Ngram
from specdemo.drafters.memory.automaton import SuffixAutomaton
from specdemo.drafters.policies.lookahead import Confidence, Constant
from specdemo.trace.events import Reason


def by_brute_force(text, longest):
    """Length of the longest suffix that occurs earlier, and the end of its latest earlier occurrence."""
    for length in range(min(longest, len(text) - 1), 0, -1):
        for end in range(len(text) - 1, length - 1, -1):
            if text[end - length : end] == text[-length:]:
                return length, end
    return 0, 0


@pytest.mark.parametrize("alphabet", [1, 2, 3, 5])
@pytest.mark.parametrize("longest", [3, 64])
def test_the_match_is_the_longest_and_among_those_the_latest(alphabet, longest):
    draw = random.Random(alphabet)
    for _ in range(25):
        automaton = SuffixAutomaton()
        for _ in range(draw.choice([10, 40, 100])):
            if draw.random() < 0.03:
                automaton.begin([draw.randrange(alphabet)])
            automaton.extend(draw.randrange(alphabet))
            assert automaton.match(longest) == by_brute_force(automaton.text, longest)


@pytest.mark.parametrize("alphabet", [1, 2, 3, 5])
def test_a_draft_is_matched_as_if_it_stood_at_the_end_of_the_text(alphabet):
    """Only entered texts are searched, and only positions with a continuation; entered texts stay unchanged."""
    draw = random.Random(alphabet)
    matched = 0
    for _ in range(60):
        automaton, twin = SuffixAutomaton(), SuffixAutomaton()
        for _ in range(draw.choice([1, 10, 40])):
            token_id = draw.randrange(alphabet)
            automaton.extend(token_id)
            twin.extend(token_id)
        text, drafted = automaton.text, [draw.randrange(alphabet) for _ in range(draw.randrange(5))]
        for longest in (3, 64):
            length, position = automaton.match(longest, drafted)
            whole = [*text, *drafted]
            ends = [
                (size, end)
                for size in range(1, min(longest, len(whole)) + 1)
                for end in range(size, len(text))
                if text[end - size : end] == whole[-size:]
            ]
            assert (length, position) == max(ends, default=(0, 0))
            matched += length > len(drafted) > 0
            following = automaton.following(position, 6, drafted)
            if length:  # the copy continues through the draft, and then through itself
                for token_id in following:
                    assert token_id == whole[position]
                    whole.append(token_id)
                    position += 1
                assert len(following) == 6
        automaton.extend(0)
        twin.extend(0)
        assert automaton.match() == twin.match()
    assert matched


def test_a_text_that_repeats_itself_stays_cheap_and_matches():
    automaton = SuffixAutomaton()
    automaton.begin([7] * 20_000)  # minutes if every token were to visit every state
    assert automaton.match(64)[0] == 64
    assert automaton.following(automaton.match(64)[1], 4) == [7] * 4


def test_no_match_and_no_copy_crosses_two_texts():
    automaton = SuffixAutomaton()
    automaton.begin([1, 2, 3])
    automaton.begin([9, 1, 2])
    length, position = automaton.match()
    assert (length, position) == (2, 2)
    assert automaton.following(position, 8) == [3]  # not 9, the next text
    automaton.begin([3, 9])  # "3 9" occurs only across the seam of the first two texts
    assert automaton.match() == (1, 5)
    separators = [token for token in automaton.text if token < 0]
    assert len(separators) == len(set(separators)) == 2


def test_a_text_that_continues_the_last_one_is_not_entered_twice():
    automaton = SuffixAutomaton()
    automaton.begin([1, 2, 3])
    automaton.follow([1, 2, 3, 4])
    automaton.begin([1, 2, 3, 4, 5, 6])
    assert automaton.text == [1, 2, 3, 4, 5, 6]
    automaton.begin([1, 2, 9])
    assert automaton.text == [1, 2, 3, 4, 5, 6, -1, 1, 2, 9]
    assert automaton.current_length == 3


def test_memory_is_bounded_and_the_current_text_goes_on():
    automaton = SuffixAutomaton(max_tokens=40)
    automaton.begin(range(100, 130))
    text = [1, 2, 3, 4, 5, 6, 7, 8]
    automaton.begin(text)
    text += [1, 2]
    automaton.follow(text)
    assert automaton.text == text  # the earlier text was let go
    assert automaton.match() == (2, 2)
    text += range(200, 300)
    automaton.follow(text)
    assert len(automaton.text) <= 40
    assert automaton.text == text[-len(automaton.text) :]
    assert automaton.current_length == len(text)
    held = len(automaton.text)
    automaton.begin([*text, 5])
    assert automaton.text[-2:] == [299, 5]
    assert len(automaton.text) == held + 1


def test_copying_goes_on_with_its_own_copy():
    ngram = Ngram(SuffixAutomaton(), Constant(7))
    text = [5, 1, 2, 3, 1, 2, 3]
    ngram.start(text)
    proposal = ngram.propose(text, 16)
    assert proposal.token_ids == (1, 2, 3, 1, 2, 3, 1)
    assert proposal.confidences[:2] == (4 / 6, 5 / 7)
    assert proposal.source == "ngram"
    assert proposal.reasons == (
        Reason("ngram", {"matched": 3, "distance": 3}),
        Reason("constant", {"lookahead": 7}),
    )
    match = ngram.search(text, 32)
    matched = match.reason.values["matched"]
    assert (matched, [token for token, _ in match.copies]) == (3, [*[1, 2, 3] * 10, 1, 2])


def test_ngram_asks_the_policy_after_each_token_and_keeps_to_the_budget():
    ngram, careful = (Ngram(SuffixAutomaton(), Confidence(least, 20)) for least in (0.55, 0.65))
    text = [1, 2, 3, 4, 1, 2]
    ngram.start(text)
    assert len(ngram.propose(text, 3)) == 3
    assert len(ngram.propose(text, 0)) == 0
    careful.start(text)
    # The confidences of a match of two are .6, .67, ...
    assert careful.propose(text, 8).token_ids == (3,)


def test_ngram_leaves_short_matches_alone_and_drafts_from_earlier_texts():
    ngram = Ngram(SuffixAutomaton(), Constant(4))
    ngram.start([1, 2, 3, 4, 5])
    ngram.start([8, 9, 3])
    assert len(ngram.propose([8, 9, 3], 8)) == 0
    assert ngram.search([8, 9, 3], 8) is None
    proposal = ngram.propose([8, 9, 3, 2, 3], 8)
    assert proposal.token_ids == (4, 5)
    assert proposal.reasons[0].code == "ngram_earlier"
