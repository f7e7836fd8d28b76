"""The TypeScript declarations contain every field of every event, and which ones a line may leave out."""

from dataclasses import fields

from specdemo.trace.events import EVENTS
from tools.docs import declarations


def interface(name: str) -> list[str]:
    body = declarations().split(f"export interface {name} {{\n")[1].split("\n}")[0]
    return [line.strip() for line in body.split("\n")]


def test_declarations_contain_every_event_with_all_its_fields():
    for name, cls in EVENTS.items():
        first, *rest = interface(cls.__name__)
        assert first == f'type: "{name}";'
        assert [line.split(":")[0].rstrip("?") for line in rest] == [f.name for f in fields(cls)]


def test_declarations_mark_fields_that_may_be_missing():
    verified = interface("Verified")
    assert "step: number;" in verified
    assert "next?: Node;" in verified  # it has no default, and None is left out of a line
    assert "places?: Place[];" in verified
    started = interface("RunStarted")
    assert "verify_costs?: [number, number][];" in started
    assert "settings: Record<string, any>;" in started
    assert 'export type FinishReason = "stop" | "length" | "cancelled";' in declarations()
