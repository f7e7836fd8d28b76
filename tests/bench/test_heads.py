"""Heads are compared on answers of the model itself, timed in turn, and told as a table that the documents read."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from passes import WORDS, tiny_nf4

from specdemo.bench import heads
from specdemo.bench.suite import Item
from specdemo.cli.measurements import _section
from specdemo.config.errors import UserError
from specdemo.kernels import runtime
from specdemo.models.decoders.choose import compile_pass


def pair_of(decoder, model=None):
    target = SimpleNamespace(decoder=decoder, model=model, info=SimpleNamespace(name="tiny"))
    return SimpleNamespace(target=target, tokenizer=None, context=512, stop_ids=frozenset)


@pytest.mark.skipif(not runtime.runs_here(), reason="the compiled pass does not run here")
def test_a_table_of_heads(monkeypatch):
    model = tiny_nf4("llama", fused=False)
    monkeypatch.setattr(
        heads, "encode_conversation", lambda _, messages, __: [*messages[0]["content"].encode()]
    )
    items = [Item("one", "all", ("\x05\x09\x11",)), Item("two", "all", ("\x01\x02",))]
    result = heads.measure_heads(pair_of(compile_pass(model), model), items, 6, 2)
    assert [head.bits for head in result.heads] == [16, 8, 4]
    sizes = [head.num_bytes for head in result.heads]
    assert sizes[0] > sizes[1] > sizes[2] >= WORDS * 256 // 2
    assert result.rows_compared == 12
    kl = [head.divergence.kl for head in result.heads]
    assert kl[0] < kl[1] < kl[2]
    assert all(seconds > 0 for head in result.heads for seconds in head.seconds)
    assert [line[:8] for line in result.table().splitlines()[2:]] == [
        "| 16 bit",
        "| 8 bits",
        "| 4 bits",
    ]
    told = _section(result.to_dict() | {"command": "python -m specdemo heads"})
    assert "## The output head of tiny" in told
    assert result.table().splitlines()[2][:10] in told


def test_a_model_without_the_compiled_pass_is_told():
    with pytest.raises(UserError, match="whose heads this measures"):
        heads.measure_heads(pair_of(None), [], 1, 1)
