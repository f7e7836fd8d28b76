"""Texts that share passes are the same as texts written alone, and their states are those of a fresh reading."""

from itertools import count

import numpy as np
import pytest
import torch
from conftest import open_target, reference_greedy, tiny_llama

from specdemo.config.errors import UserError
from specdemo.config.settings import Sampling
from specdemo.files.progress import silent
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.training.answers import AnswerText, AnswerWriter, write_shards
from specdemo.training.data import Answer, read_shards, save_answers, states_path

LAYERS, MOST = (1, 2), 9
BEGIN = [7, 8, 9, 10]
PROMPTS = [[*BEGIN, 3], [*BEGIN, 11, 12, 13], [5], [*BEGIN, *range(20, 60)], [*BEGIN, 3, 4]] * 12


def texts(sampling: Sampling):
    for number, ids in zip(count(), PROMPTS, strict=False):
        random = np.random.default_rng(number)
        yield AnswerText("made", number, ids, sampling, random)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_texts_are_written_together_as_alone(temperature):
    model = tiny_llama(0)
    writer = AnswerWriter(LeanDecoder(model), LAYERS, (), MOST)
    found = {one.row_id: one for one in writer.write(texts(Sampling(temperature)))}
    assert len(found) == len(PROMPTS)
    for number in (0, 1, 2, 3, 4, 59):
        one, ids = found[number], PROMPTS[number]
        assert len(one.answer_ids) == MOST
        if temperature == 0:
            assert one.answer_ids == reference_greedy(model, ids, MOST)
        target = open_target(model)
        text = [*ids, *one.answer_ids[:-1]]
        target.read(text)
        kept = torch.from_numpy(one.stored).view(torch.bfloat16).float()
        wanted = target.features.read(0, len(text), LAYERS).view(len(text), 2, -1)
        torch.testing.assert_close(kept, wanted, rtol=0.02, atol=0.02)
        answer = one.answer()
        assert answer.top_ids.shape == answer.top_probs.shape == (MOST, 8)
        assert temperature or (answer.top_ids[:, 0] == answer.answer_ids).all()
    if temperature:  # the same prompt, with other numbers
        assert found[0].answer_ids != found[5].answer_ids


def test_answer_writer_reads_a_given_answer_as_the_written_one():
    """Read in large parts, a given answer has the states and distributions of the one that was written token by token."""
    decoder = LeanDecoder(tiny_llama(0))
    written = next(AnswerWriter(decoder, LAYERS, (), MOST).write(texts(Sampling())))
    given = AnswerText("made", 0, written.prompt_ids, answer_ids=written.answer_ids, given=True)
    (read,) = AnswerWriter(decoder, LAYERS, (), MOST).write(iter([given]))
    states = [one.stored for one in (read, written)]
    found, wanted = (torch.from_numpy(one).view(torch.bfloat16).float() for one in states)
    torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.02)
    assert (read.answer().top_ids[:, 0] == written.answer().answer_ids).all()


def test_a_text_ends_at_a_stop_token():
    model = tiny_llama(0)
    stop = reference_greedy(model, PROMPTS[0], MOST)[3]
    writer = AnswerWriter(LeanDecoder(model), LAYERS, {stop}, MOST)
    ended = next(one for one in writer.write(texts(Sampling())) if one.row_id == 0)
    assert ended.answer_ids.index(stop) == len(ended.answer_ids) - 1 < MOST - 1


def test_nothing_is_added_to_states_that_fill_the_disk_space(tmp_path):
    writer = AnswerWriter(LeanDecoder(tiny_llama(0)), LAYERS, (), MOST)
    for _ in range(2):
        paths = write_shards(writer, texts(Sampling()), len(PROMPTS), 1, tmp_path, silent)
        assert paths == sorted(tmp_path.glob("*.npz")) == [tmp_path / "answers-0000.npz"]


def test_shards_are_read_as_one_and_others_are_refused(tmp_path):
    paths = []
    for shard in range(3):
        top = np.full((4, 8), shard + 1), np.full((4, 8), 0.1, np.float16)
        rows = [
            Answer("made", shard * 2 + row, 0.0, np.arange(3), np.arange(4), *top)
            for row in range(2)
        ]
        paths.append(tmp_path / f"answers-{shard:04d}.npz")
        save_answers(paths[-1], rows, 100)
        np.save(states_path(paths[-1]), np.full((12, 2, 5), shard, np.int16))
    _, rows, hidden = read_shards(paths, LAYERS, 100)
    assert [row.start for row in rows] == [0, 6, 12, 18, 24, 30]
    cpu = torch.device("cpu")
    found = hidden.rows([1], np.array([0, 35, 12, 11]), cpu).bfloat16().view(torch.int16)
    assert found[:, 0].tolist() == [0, 2, 1, 0]
    assert (hidden.texts(rows[2:4], (2,), cpu).bfloat16().view(torch.int16) == 1).all()
    assert hidden.word_mass[2] == pytest.approx(2 * 4 * 8 * 0.1, rel=1e-3)
    assert hidden.likeliest[12:18].tolist() == [0, 0, 2, 2, 2, 2]  # nothing is stored of a prompt
    assert hidden.greedy[12:18].tolist() == [False, False, True, True, True, True]
    with pytest.raises(UserError, match="of other answers"):
        read_shards(paths, (1, 2, 3), 100)
    states_path(paths[1]).unlink()
    with pytest.raises(UserError, match="no hidden states"):
        read_shards(paths, LAYERS, 100)
