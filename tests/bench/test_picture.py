"""The moving picture of the README."""

from __future__ import annotations

import io

import pytest

Image = pytest.importorskip("PIL.Image")

from specdemo.bench import picture  # noqa: E402


def png(colour: str) -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (40, 20), colour).save(written, "PNG")
    return written.getvalue()


def test_frames_become_an_animation_that_rests_at_its_end() -> None:
    shown = Image.open(io.BytesIO(picture.animate([png("red"), png("white"), png("blue")])))
    assert (shown.format, shown.size, shown.n_frames) == ("WEBP", (40, 20), 3)
    assert shown.info["loop"] == 0
    durations = []
    for frame in range(3):
        shown.seek(frame)
        shown.load()
        durations.append(shown.info["duration"])
    assert durations == [picture.FRAME_MS, picture.FRAME_MS, picture.LAST_MS]
    assert shown.convert("RGB").getpixel((5, 5))[2] > 200


def test_the_shipped_picture_moves_and_is_small() -> None:
    assert picture.OUT.stat().st_size < picture.MOST_BYTES
    with Image.open(picture.OUT) as shown:
        assert shown.n_frames > 20


def test_an_unknown_run_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert picture.main(["--run", "nowhere"]) == 1
    assert "'nowhere'" in capsys.readouterr().err
