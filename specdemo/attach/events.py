"""Rounds of another program's server as the events of a trace. A value that the server does not give is left unknown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from specdemo.attach.servers import Generation, Piece, Round
from specdemo.trace.events import (
    NOTHING,
    PLAIN,
    SPECULATIVE,
    Drafted,
    Event,
    FinishReason,
    Knowledge,
    ModelInfo,
    Node,
    Place,
    RunFinished,
    RunStarted,
    Status,
    Verified,
)

ATTACHED = "attached"  # method of a server's own drafts


def events_of(
    parts: Iterable[Generation | Round],
    prompt: str,
    settings: Mapping[str, object],
    lane: str = SPECULATIVE,
) -> Iterator[Event]:
    """Yield the events of a run from the parts of `Server.stream`. The tokens of the prompt's pass are a step of their own."""
    elapsed, step, begun, new_tokens = 0.0, 0, False, 0
    knowledge = Knowledge.NONE
    for part in parts:
        if isinstance(part, Round):
            elapsed += part.seconds or 0.0
            new_tokens += len(part.committed)
            yield from _step(part, lane, step, elapsed, exact=knowledge is Knowledge.EXACT)
            step += 1
        elif not begun:
            begun, knowledge = True, part.knowledge
            yield _header(part, prompt, settings, lane)
            for piece in part.first:
                own = Round((piece,), 0, 0, 0.0, 0.0)
                yield from _step(own, lane, step, 0.0, exact=True)
                step += 1
            new_tokens += len(part.first)
        else:
            exact = part.knowledge is Knowledge.EXACT
            if part.finish == "stop" and any(piece.text for piece in part.pieces[-1:]):
                # A trace ends with the token that ends the answer, which has no text.
                end = Round((Piece(""),), 0, 0, 0.0, 0.0)
                yield from _step(end, lane, step, elapsed, exact=exact)
            yield RunFinished(
                lane,
                FinishReason(part.finish or "stop"),
                new_tokens if exact else (part.reported_tokens or new_tokens),
                elapsed,
                None if exact else part.drafted,
                None if exact else part.accepted,
                () if exact else part.positions,
            )


def events(generation: Generation) -> Iterator[Event]:
    """Yield the events of a whole generation, for example of one from a log."""
    lane = PLAIN if generation.drafted == 0 else SPECULATIVE
    parts: list[Generation | Round] = [generation, *generation.rounds, generation]
    return events_of(parts, generation.prompt, {}, lane)


def _header(
    about: Generation, prompt: str, settings: Mapping[str, object], lane: str
) -> RunStarted:
    return RunStarted(
        lane=lane,
        method=NOTHING if lane == PLAIN else ATTACHED,
        prompt=prompt,
        settings=dict(settings),
        target=ModelInfo(about.model or about.server),
        prompt_tokens=about.prompt_tokens or 0,
        cached_tokens=about.cached_tokens or 0,
        prefill_seconds=about.prefill_seconds or 0.0,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        knowledge=about.knowledge,
        server=f"{about.server} {about.version}".strip(),
    )


def _step(
    found: Round, lane: str, step: int, elapsed: float, *, exact: bool
) -> Iterator[Drafted | Verified]:
    """Yield a draft and its verification. A refused token has an id, and any one a probability, only if a log named it."""
    accepted = len(found.committed) - 1 if found.accepted is None else found.accepted
    drafted = max(accepted if found.drafted is None else found.drafted, accepted)
    kept = min(accepted, len(found.committed))  # a limit may cut the last round
    nodes = []
    for place in range(drafted):
        named = next((one[0] for one in found.candidates[place : place + 1] if one), None)
        piece = Piece(named.text, named.token_id) if named else Piece("")
        piece = found.committed[place] if place < kept else piece
        status = Status.REJECTED if place == accepted else Status.UNREACHED
        status = Status.ACCEPTED if place < kept else status
        chance = named.prob if named else None
        nodes.append(Node(piece.token_id, piece.text, place - 1, status, confidence=chance))
    own = found.committed[accepted] if len(found.committed) > accepted else None
    full = bool(drafted) and accepted == drafted
    status = Status.BONUS if full else Status.CORRECTION if drafted else Status.PLAIN
    after = own and Node(own.token_id, own.text, status=status if exact else Status.PLAIN)
    drafting = found.draft_seconds
    considered = enumerate(found.candidates, -1)
    yield Drafted(
        lane,
        step,
        drafted,
        "",
        tuple(replace(one, status=Status.DRAFTED) for one in nodes),
        drafting,
    )
    yield Verified(
        lane,
        step,
        tuple(nodes),
        tuple(range(kept)),
        after or None,
        drafting,
        max(0.0, (found.seconds or 0.0) - (drafting or 0.0)),
        0.0,
        elapsed,
        places=tuple(Place(parent, (), choices) for parent, choices in considered if choices)
        or None,
    )
