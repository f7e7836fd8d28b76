"""Runs of one variant on the caches of a session: the only way to run a method on a text."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING

from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings
from specdemo.drafters.base import DraftingContext, Method
from specdemo.drafters.methods import METHODS, make_drafter
from specdemo.engine.cost import ANY_ROWS
from specdemo.engine.types import Drafter, Limits
from specdemo.session.loaded import Loaded
from specdemo.session.text import TokenText, Transcript
from specdemo.trace.events import Event, RunFailed, RunStarted, Verified
from specdemo.trace.metrics import dropped, measure, output_ids, same_prefix

if TYPE_CHECKING:
    from specdemo.drafters.memory.visit import Memory
    from specdemo.engine.sampling import Shaper
    from specdemo.models.networks.registry import OpenedNetwork

Lane = Generator[Event, None, str]
"""The events of a run; the generator returns the text generated so far, also after an error."""

TURN_SECONDS = 0.25  # of a lane's own clock; a change costs, because the processor's caches contain the other lane's data


def beside(lanes: Sequence[Lane]) -> Generator[Event, None, list[str]]:
    """Advance runs next to each other, all of one text. Returns their texts.

    Each turn is of the run whose own clock is behind, the first of equal ones, and lasts `TURN_SECONDS` of that clock: the
    `elapsed_seconds` of its last step, which the time of no other run enters. All headers come before the first step.
    """
    texts = [""] * len(lanes)
    clocks = dict.fromkeys(range(len(lanes)), -TURN_SECONDS)  # a header sets its run's clock to 0
    with ExitStack() as ending:
        for lane in lanes:
            ending.enter_context(closing(lane))
        while clocks:
            number = min(clocks, key=clocks.__getitem__)
            end = clocks[number] + TURN_SECONDS
            while clocks.get(number, end) < end:
                try:
                    event = next(lanes[number])
                except StopIteration as over:
                    texts[number] = over.value
                    del clocks[number]
                    continue
                if isinstance(event, RunStarted):
                    clocks[number] = 0.0
                elif isinstance(event, Verified):
                    clocks[number] = event.elapsed_seconds
                yield event
    return texts


class Caches:
    """The caches of one session on one loaded pair. Runs use them one after the other, in the compute thread.

    A run continues a text. The prefix that the text shares
    with the previous run is not read again.

    broken: a run failed and left the caches half-written; open new ones
    committed: prompt and output of the last run; transcript: of the conversation's last answer
    """

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.broken = False
        self._target = loaded.pair.open_target()
        self._opened: dict[str, OpenedNetwork] = {}  # models that draft, by the need that they meet
        self.committed: list[int] = []
        self.transcript: Transcript | None = None

    @property
    def _cached_ids(self) -> list[int]:
        """The cached ids: a prefix of the committed ones, also during a run and after an error in the middle of a step."""
        return self.committed[: self._target.length]

    @property
    def memory_bytes(self) -> int:
        from specdemo.engine.target import PrefixReader

        readers = [one for one in self._opened.values() if isinstance(one, PrefixReader)]
        return self._target.memory_bytes + sum(reader.model.memory_bytes for reader in readers)

    def lane(
        self,
        prompt_ids: Sequence[int],
        settings: RunSettings,
        header: RunStarted,
        *,
        memory: Memory | None = None,
        together: Callable[[], int] = lambda: 1,
        cancelled: Callable[[], bool] = lambda: False,
        sibling: Caches | None = None,
        known: Mapping[str, Method] = METHODS,
    ) -> Lane:
        """Run one variant after a text. An error arrives as RunFailed.

        prompt_ids: the text, which may include the first tokens of an answer; header: its counts and times are filled in
        memory: texts and counts of the session's earlier runs; this run is added
        together: returns the expected number of concurrent runs, this one included
        sibling: other caches on the pair; what they hold of the text is copied, not read again
        known: the methods that settings can name
        """
        from specdemo.engine.loop import generate
        from specdemo.engine.sampling import Shaper
        from specdemo.engine.verify import VERIFIERS, verify_sampling

        pair, target, prompt_ids = self.loaded.pair, self._target, list(prompt_ids)
        settings = settings.drawn(pair.recommended.sampling)
        shaper = Shaper.of(settings)
        drafter = self._drafter(known, settings, shaper, memory, together)
        room = min(settings.max_new_tokens, pair.context - len(prompt_ids))
        self._reuse(prompt_ids, sibling)
        method = known[settings.method]
        takes_states = "draft" in method.takes and pair.taken not in ("", "draft")
        target.record(wanted=method.states or takes_states)
        running = generate(
            target,
            drafter,
            prompt_ids,
            shaper=shaper,
            limits=Limits(room, pair.stop_ids()),
            started=header,
            cancelled=cancelled,
            alone=settings.exact and pair.costs.exact_rows != ANY_ROWS,
            detail=settings.detail,
            verifier=VERIFIERS.get(settings.verification, verify_sampling),
        )
        return (yield from self._with_text(running, prompt_ids, header, memory))

    def _reuse(self, prompt_ids: list[int], sibling: Caches | None) -> None:
        """Keep the cached prefix of a text, and copy what a sibling holds of it. The last token is always read again."""
        self._target.rollback(same_prefix(self._cached_ids, prompt_ids[:-1]))
        if sibling:
            shared = same_prefix(sibling._cached_ids, prompt_ids[:-1])
            self._target.copy(sibling._target, shared)
        self.committed = prompt_ids

    def _with_text(
        self,
        running: Generator[Event, None, None],
        prompt_ids: list[int],
        header: RunStarted,
        memory: Memory | None,
    ) -> Lane:
        """Yield the events of a run with the text of their tokens."""
        events: list[Event] = []
        text = TokenText(self.loaded.pair.tokenizer, prompt_ids)
        try:
            with closing(running):
                yield from text.filled(_recorded(running, events))
        except UserError:
            raise
        except Exception as error:  # noqa: BLE001 - any error may leave the caches half-written
            self.broken = True
            out_of_memory = isinstance(error, MemoryError) or "memory" in str(error).lower()
            broke = (
                UserError("run.no_memory")
                if out_of_memory
                else UserError("run.failed", error=error)
            )
            yield failed(header.lane, broke)
        finally:
            self.broken = self.broken or bool(dropped(events))
            self.committed = [*prompt_ids, *output_ids(events)]
            if memory is not None:
                memory.record(header.method, measure(events))
        return text.answer

    def _drafter(
        self,
        known: Mapping[str, Method],
        settings: RunSettings,
        shaper: Shaper,
        memory: Memory | None,
        together: Callable[[], int],
    ) -> Drafter:
        """Make the drafter that the settings name."""
        pair = self.loaded.pair
        context = DraftingContext(
            settings,
            shaper,
            pair.target.vocabulary_size,
            profile=pair.costs,
            memory=memory,
            models={need: partial(self._open, need) for need in pair.drafts},
            taken=pair.taken,
            features=self._target.features,
            store=self.loaded.store,
            together=together,
        )
        return make_drafter(context, known)

    def _open(self, need: str) -> OpenedNetwork:
        """Return the model that meets a need, opened on first use."""
        if need not in self._opened:
            self._opened[need] = self.loaded.pair.open_draft(need, self._target)
        return self._opened[need]


def _recorded(running: Iterable[Event], events: list[Event]) -> Iterator[Event]:
    for event in running:
        events.append(event)
        yield event


def failed(lane: str, error: UserError) -> RunFailed:
    return RunFailed(lane, error.message, error.unaffected, error.advice)


def failure(event: RunFailed) -> UserError:
    return UserError(
        "run.reported", message=event.message, unaffected=event.unharmed, advice=event.advice
    )
