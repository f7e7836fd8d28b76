"""ZeroGPU, with the real `spaces` package: in a process of its own, since it changes torch for good."""

from pathlib import Path

import pytest
from programs import python

from specdemo.config.strings import strings
from specdemo.models.doctor import installed

HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(
    not installed("spaces"), reason="needs spaces, see requirements-dev.txt"
)


def test_a_page_on_zero_gpu():
    words = ["-m", "pytest", "-q", "-n", "0", "-x", "-p", "no:cacheprovider", "-p", "zero_space"]
    said = python(*words, HERE / "zero_cases.py", cwd=HERE.parents[1], PYTHONPATH=str(HERE))
    assert "skipped" not in said


def test_an_error_of_spaces_is_translated_to_german():
    import spaces

    source = (Path(spaces.__file__).parent / "zero" / "client.py").read_text(encoding="utf-8")
    assert all(f'"{text}"' in source for text in strings("gpu").REPORTED)
