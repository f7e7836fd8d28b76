"""One visitor's messages and caches, and the runs that use them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from specdemo.drafters.methods import METHODS
from specdemo.engine.forward import ForwardRequest
from specdemo.session.machine import machine_name
from specdemo.settings import RunSettings
from specdemo.trace.events import PLAIN as PLAIN
from specdemo.trace.events import SPECULATIVE as SPECULATIVE
from specdemo.trace.events import Event, ModelInfo, RunFailed, RunStarted

if TYPE_CHECKING:
    from specdemo.drafters.base import DraftingContext
    from specdemo.drafters.memory.visit import Memory
    from specdemo.engine.prefix import PrefixReader
    from specdemo.engine.sampling import Shaper
    from specdemo.engine.target import CachedModel
    from specdemo.models.pair import LoadedPair
    from specdemo.session.studio import Studio


class Conversation:
    """One visitor's messages and caches. Dropping it frees everything."""

    def __init__(self, studio: Studio) -> None:
        self._studio = studio
        self._messages: list[dict[str, str]] = []
        self._pair: LoadedPair | None = None
        self._target: CachedModel | None = None
        self._draft: PrefixReader | None = None
        self._copy: PrefixReader | None = None
        self._trained: dict[str, Any] = {}
        self._cached_ids: list[int] = []
        self._memory: Memory | None = None

    @property
    def memory(self) -> Memory:
        """What this visitor's runs leave for the next, made when first asked for."""
        self._open_pair()
        from specdemo.drafters.memory.visit import Memory

        self._memory = self._memory or Memory()
        return self._memory

    def forget(self) -> None:
        """Drop what earlier runs have taught the drafters of this visitor."""
        self._memory = None

    def reset(self) -> None:
        """Start over; the caches stay, for what the next prompt shares with them."""
        self._messages = []

    def close(self) -> None:
        """Free the caches and what was learned."""
        self._messages, self._cached_ids = [], []
        self._pair = self._target = self._draft = self._copy = self._memory = None
        self._trained = {}

    def run(
        self,
        prompt: str,
        settings: RunSettings,
        *,
        system: str = "",
        cancel: threading.Event | None = None,
        every: float = 0.0,
    ) -> Iterator[Event]:
        """Answer a prompt: the plain lane first when a baseline is wanted, then the speculative one.

        every: seconds between two looks at what has come, for viewers that need not see each event at once
        Raises UserError before the first event for what the user can mend; what breaks later arrives as RunFailed.
        """
        cancel = cancel or threading.Event()
        settings = settings.checked()
        yield from self._studio.runner.run(self._run(prompt, settings, system, cancel), every)

    def _run(
        self,
        prompt: str,
        settings: RunSettings,
        system: str,
        cancel: threading.Event,
    ) -> Iterator[Event | ForwardRequest]:
        from specdemo.session.text import encode_conversation

        pair = self._open_pair()
        messages = [*self._messages, {"role": "user", "content": prompt}]
        if system.strip():
            messages = [{"role": "system", "content": system}, *messages]
        prompt_ids = encode_conversation(pair.tokenizer, messages, pair.context)
        plain = replace(settings, method="nothing")
        lanes = [(SPECULATIVE, settings)]
        if settings.method == "nothing":
            lanes = [(PLAIN, plain)]
        elif settings.baseline:
            lanes.insert(0, (PLAIN, plain))
        answer = ""
        for lane, lane_settings in lanes:
            if cancel.is_set():
                break
            header = RunStarted(
                lane=lane,
                method=lane_settings.method,
                prompt=prompt,
                settings=settings.to_dict(),
                target=pair.target.info,
                machine=machine_name(),
                started_at=datetime.now(UTC).isoformat(timespec="seconds"),
                verify_costs=pair.costs.verify,
                draft_cost=pair.costs.draft_step,
            )
            if method := METHODS.get(lane_settings.method):
                header = replace(header, lossy=method.lossy, draft=_draft_info(pair, method.needs))
                if "memory" in method.options and lane_settings.memory and self._memory:
                    header = replace(header, history=self._memory.rates(lane_settings.method))
            answer = yield from self._lane(pair, prompt_ids, lane_settings, header, cancel)
        self._messages = [
            *self._messages,
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": answer},
        ]

    def _lane(
        self,
        pair: LoadedPair,
        prompt_ids: list[int],
        settings: RunSettings,
        header: RunStarted,
        cancel: threading.Event,
    ) -> Iterator[Event | ForwardRequest]:
        """The events of one lane with their text; returns the answer so far, whatever happened."""
        from specdemo.drafters.methods import make_drafter
        from specdemo.engine.limits import Limits
        from specdemo.engine.loop import steps
        from specdemo.engine.sampling import Shaper
        from specdemo.session.text import TokenText
        from specdemo.trace.metrics import measure, output_ids

        shaper = Shaper(settings.sampling)
        drafter = make_drafter(self._context(pair, settings, shaper))
        target, text = self._target, TokenText(pair.tokenizer, prompt_ids)
        target.rollback(_shared(self._cached_ids, prompt_ids))
        target.record(wanted=METHODS[settings.method].states)
        room = pair.context - len(prompt_ids)
        limits = Limits(min(settings.max_new_tokens, room), pair.stop_ids())
        committed, events = list(prompt_ids), []
        try:
            for event in steps(
                target,
                drafter,
                prompt_ids,
                shaper=shaper,
                limits=limits,
                started=header,
                cancelled=cancel.is_set,
                detail=settings.detail,
            ):
                if isinstance(event, ForwardRequest):
                    yield event
                    continue
                events.append(event)
                committed += output_ids([event])
                yield text.fill(event)
        except (RuntimeError, MemoryError) as error:
            self._pair = None  # the caches may be half-written: the next run opens new ones
            yield _failed(header.lane, error)
        finally:
            # Whatever is cached is a prefix of what was committed, also after a break in the middle of a step.
            self._cached_ids = committed[: target.length]
            if settings.memory and self._memory:
                self._memory.record(settings.method, measure(events))
        return text.answer

    def _context(self, pair: LoadedPair, settings: RunSettings, shaper: Shaper) -> DraftingContext:
        """What the method's factory may use; the quantised copy is opened only where it is needed."""
        from specdemo.drafters.base import DraftingContext
        from specdemo.drafters.memory.visit import Memory
        from specdemo.engine.prefix import PrefixReader

        method = METHODS.get(settings.method)
        if method and "copy" in method.needs and pair.open_copy and self._copy is None:
            self._copy = PrefixReader(pair.open_copy())
        if settings.memory and self._memory is None:
            self._memory = Memory()
        return DraftingContext(
            settings,
            shaper,
            pair.vocabulary_size,
            profile=pair.costs,
            memory=self._memory if settings.memory else None,
            draft=self._draft,
            copy=self._copy,
            trained={kind: partial(self._open_trained, kind) for kind in pair.trained},
            features=self._target.features,
            store=self._studio.shipped.store,
            lookahead_weights=self._studio.shipped.lookahead,
            together=max(1, self._studio.runner.going_on),
        )

    def _open_trained(self, kind: str) -> Any:
        """This conversation's reader of a trained drafter, made when it is first wanted."""
        if kind not in self._trained:
            self._trained[kind] = self._pair.open_trained(kind, self._target)
        return self._trained[kind]

    def _open_pair(self) -> LoadedPair:
        """The loaded pair, with caches of this conversation; new ones when the pair was switched."""
        pair = self._studio.pair
        if pair is not self._pair:
            from specdemo.engine.prefix import PrefixReader

            self._pair, self._cached_ids, self._copy, self._memory = pair, [], None, None
            self._target, self._trained = pair.open_target(), {}
            self._draft = PrefixReader(pair.open_draft()) if pair.open_draft else None
        return pair


def _shared(cached: list[int], wanted: list[int]) -> int:
    """Tokens of a cache that a prompt can reuse; its last token is always read anew."""
    same = 0
    for one, other in zip(cached, wanted[:-1], strict=False):
        if one != other:
            break
        same += 1
    return same


def _draft_info(pair: LoadedPair, needs: tuple[str, ...]) -> ModelInfo | None:
    """The weights that draft, for the header."""
    if "copy" in needs:
        return pair.copy_info
    for need in needs:
        if need in pair.trained:
            return pair.trained[need].info
    return pair.draft_info if "draft" in needs else None


def _failed(lane: str, error: Exception) -> RunFailed:
    out_of_memory = isinstance(error, MemoryError) or "memory" in str(error).lower()
    return RunFailed(
        lane,
        "There was not enough memory to go on." if out_of_memory else f"The run broke: {error}.",
        "The text so far is kept, and other visitors are not affected.",
        "Shorten the prompt, press Clear, or choose a smaller pair."
        if out_of_memory
        else "Run again.",
    )
