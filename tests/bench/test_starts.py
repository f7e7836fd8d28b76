"""The first start packs, the later ones read; both end with a token."""

import json

from tiny_gguf import tiny_gguf

from specdemo.bench import starts
from specdemo.config.settings import AppSettings


def test_the_first_start_packs_and_a_later_one_reads(tmp_path, monkeypatch, capsys):
    path = tiny_gguf(tmp_path / "tiny.gguf", "qwen2")

    def here(command):
        settings = AppSettings(target=str(path), draft="none", cache_dir=tmp_path / "cache")
        began = float(command[command.index("--began") + 1])
        return json.dumps(starts.asdict(starts.start(settings, began)))

    monkeypatch.setattr(starts, "_answer", here)
    out = tmp_path / "starts.json"
    starts.main([str(path), "--cache", str(tmp_path / "cache"), "--json", str(out)])
    first, later = json.loads(out.read_text())["starts"]
    assert "quantise" in first["stages"]
    assert "quantise" not in later["stages"]
    assert first["peak_bytes"] > 0
    assert later["seconds"] > 0
    assert capsys.readouterr().out.count("start:") == 2
