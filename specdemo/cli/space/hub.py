"""Upload a plan with the hub's client, follow the build, visit the page, and explain each failure in a sentence."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from specdemo.cli.space.plan import STATIC, TAG, SpacePlan
from specdemo.config.errors import UserError
from specdemo.files.hub import kind_of

if TYPE_CHECKING:
    from huggingface_hub import HfApi, SpaceInfo

KIND = "space"
NOTHING_CHANGED = "Nothing on the hub was changed."
WAIT_SECONDS = 30 * 60.0  # the hub stops starting a Space after 30 minutes
BUILD_POLL_SECONDS = 3.0
AT_WORK = {"BUILDING", "RUNNING_BUILDING", "APP_STARTING", "RUNNING_APP_STARTING"}
REACHABLE = {"RUNNING", "SLEEPING"}  # a visit wakes a sleeping one
REFUSED = (401, 402, 403, 409, 413, 429)  # statuses of the hub with an error of their own
VISIT_PROMPT = "Why is the sky blue?"
VISIT_SETTINGS = {"max_new_tokens": 32, "baseline": False}
READY_SECONDS = 10 * 60.0  # for a model that is downloaded and loaded after the page is there
SHOWN_LETTERS = 80
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PublishedSpace:
    """A Space with the files of a plan. address: its page on the hub; commit: the uploaded commit"""

    repo: str
    address: str
    commit: str


def connect() -> HfApi:
    """Return the hub's client; HF_ENDPOINT may name another hub. Raises UserError without a token."""
    from huggingface_hub import HfApi, get_token

    if not get_token():
        raise UserError("space.no_token")
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"))


def publish(plan: SpacePlan, api: HfApi, report: Report) -> PublishedSpace:
    """Create or update the Space; parts that agree with the plan stay unchanged. Raises UserError."""
    with told(NOTHING_CHANGED):
        user = _who(api)
        space = _find(api, plan.repo)
        if space:
            _check_ours(api, space)
    if not space:
        with told(NOTHING_CHANGED):
            api.create_repo(
                plan.repo,
                repo_type=KIND,
                private=plan.private,
                space_sdk=plan.sdk,
                space_hardware=None if plan.sdk == STATIC else plan.hardware,  # type: ignore[arg-type]  # a name will do
                space_variables=[{"key": k, "value": v} for k, v in plan.variables.items()] or None,
            )
        report(f"{user} has a new Space {plan.repo}.")
    elif plan.private and not space.private:
        with told(NOTHING_CHANGED):
            api.update_repo_settings(plan.repo, repo_type=KIND, private=True)
        report(f"{plan.repo} is private now.")
    with told("The files of the Space are as they were."):
        commit = _upload(plan, api)
    if space and space.sha == commit:
        report("The files were up to date.")
    if space:
        with told("The files are uploaded; variables or hardware may be as before."):
            _set_up(plan, api, report)
    return PublishedSpace(plan.repo, f"{api.endpoint}/spaces/{plan.repo}", commit)


def _who(api: HfApi) -> str:
    """The token's owner. Raises UserError for a token that may only read."""
    found = api.whoami()
    if found.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise UserError("space.read_only_token")
    return str(found["name"])


def _find(api: HfApi, repo: str) -> SpaceInfo | None:
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        return api.space_info(repo)
    except RepositoryNotFoundError:
        return None


def _check_ours(api: HfApi, space: SpaceInfo) -> None:
    """Raises UserError for a Space with anything in it that is not this program's."""
    tags = (space.card_data.tags if space.card_data else None) or []
    if TAG in tags or len(api.list_repo_commits(space.id, repo_type=KIND)) <= 1:
        return  # the first commit is the hub's own
    raise UserError("space.taken", repo=space.id)


def _upload(plan: SpacePlan, api: HfApi) -> str:
    """Upload all files in one commit, so that no visitor sees half a Space. returns: the commit

    The client sends only new files; other files on the hub are deleted.
    """
    commit = api.upload_folder(
        repo_id=plan.repo,
        folder_path=plan.folder,
        repo_type=KIND,
        commit_message="specdemo",
        delete_patterns="*",
    )
    return str(commit.oid)


def _set_up(plan: SpacePlan, api: HfApi, report: Report) -> None:
    """Variables and hardware of a Space that was there before."""
    if plan.sdk == STATIC:
        return
    known = api.get_space_variables(plan.repo)
    for name, value in plan.variables.items():
        if name not in known or known[name].value != value:
            api.add_space_variable(plan.repo, name, value)
            report(f"{name} is {value} now.")
    runtime = api.get_space_runtime(plan.repo)
    if (runtime.requested_hardware or runtime.hardware) != plan.hardware:
        api.request_space_hardware(plan.repo, plan.hardware)  # type: ignore[arg-type]  # a name will do
        report(f"The hardware is {plan.hardware} now.")


def follow(
    published: PublishedSpace, api: HfApi, report: Report, poll: float = BUILD_POLL_SECONDS
) -> SpaceInfo:
    """Wait until the Space runs the uploaded commit. Raises UserError.

    poll: seconds between requests
    """
    until, last = time.monotonic() + WAIT_SECONDS, ""
    while True:
        with told("The files are uploaded, and the hub goes on without this command."):
            runtime = api.get_space_runtime(published.repo)
        stage = runtime.stage
        if stage != last:
            report(f"{published.repo}: {stage}")
        earlier = runtime.raw.get("sha", published.commit) != published.commit
        if stage not in AT_WORK and not (earlier and stage in REACHABLE):
            break
        if time.monotonic() > until:
            _not_running(published.repo, f"still {stage} after 30 minutes")
        last = stage
        time.sleep(poll)
    if stage not in REACHABLE:
        _not_running(published.repo, f"{stage} {runtime.raw.get('errorMessage') or ''}".strip())
    with told("The Space runs."):
        return api.space_info(published.repo)


def _not_running(repo: str, state: str) -> NoReturn:
    raise UserError("space.not_running", repo=repo, state=state)


def log_lines(repo: str, api: HfApi) -> Iterator[str]:
    """Return the log of a Space: of its build while it is built or if that failed, else of its run. Raises UserError."""
    with told():
        stage = api.get_space_runtime(repo).stage
        build = "BUILD" in stage or stage in ("CONFIG_ERROR", "NO_APP_FILE")
        yield from api.fetch_space_logs(repo, build=build)


def delete(repo: str, api: HfApi) -> None:
    with told(NOTHING_CHANGED):
        api.delete_repo(repo, repo_type=KIND)


@contextmanager
def told(unaffected: str = "") -> Iterator[None]:
    """Convert the errors of the hub's client. unaffected: sentence about the state after an error"""
    from huggingface_hub.errors import BadRequestError

    try:
        yield
    except UserError:
        raise
    except Exception as error:
        kind, status = kind_of(error)
        if kind in ("no_repo", "gated"):
            raise UserError("space.unknown", unaffected=unaffected) from error
        if kind in ("status", "no_revision"):
            raise _refusal(error, status, unaffected) from error
        if isinstance(error, ValueError) and isinstance(error.__cause__, BadRequestError):
            raise UserError("space.readme", error=_line(error), unaffected=unaffected) from error
        if kind == "unreachable":
            raise UserError(
                "space.connection", error=_line(error), unaffected=unaffected
            ) from error
        raise


def _refusal(error: Exception, status: int, unaffected: str) -> UserError:
    """Return the hub's message, if it has one."""
    words = _line(getattr(error, "server_message", None) or "")
    said = f": {words}" if words else ""
    if status in REFUSED:
        return UserError(f"space.refused_{status}", said=said, unaffected=unaffected)
    return UserError("space.status", status=status, said=said, unaffected=unaffected)


def _line(words: object) -> str:
    """Format another program's message as the end of a sentence."""
    return " ".join(str(words).split()).rstrip(".")


def visit(space: SpaceInfo, report: Report, poll: float = BUILD_POLL_SECONDS) -> None:
    """Open the page and, if it has a model, run a prompt. Raises UserError.

    The token of this machine is sent to a private Space only. poll: seconds between requests
    """
    import httpx
    from gradio_client.exceptions import AppError
    from huggingface_hub import get_token

    page = str(space.host)
    token = get_token() if space.private else None
    try:
        if space.sdk == STATIC:
            _read(page, token)
            report(f"The site is at {page}")
        else:
            report(f"The page is at {page} and answers: {_ask(page, token, poll)}")
    except (AppError, httpx.HTTPError, ValueError) as error:
        raise UserError(
            "space.visit_failed",
            page=page,
            error=" ".join(str(error).split()) or type(error).__name__,
            repo=space.id,
        ) from error


def _read(page: str, token: str | None) -> None:
    """Raises httpx.HTTPError, and ValueError for a page of another program."""
    import httpx

    from specdemo.ui.site import MARK

    headers = {"authorization": f"Bearer {token}"} if token else {}
    answer = httpx.get(page, headers=headers, follow_redirects=True, timeout=60).raise_for_status()
    if MARK not in answer.text:
        raise ValueError("it is not this program's site.")


def _ask(page: str, token: str | None, poll: float) -> str:
    """The beginning of an answer, once the model is loaded."""
    import httpx
    from gradio_client import Client

    who: str = token or False  # type: ignore[assignment]  # False keeps the client from sending this machine's token
    client = Client(page, token=who, verbose=False, download_files=False, analytics_enabled=False)
    try:
        until = time.monotonic() + READY_SECONDS
        while True:
            health = httpx.get(f"{client.src}health", headers=client.headers, timeout=60)
            state = health.json()["status"]
            if state != "loading" or time.monotonic() > until:
                break
            time.sleep(poll)
        if state != "ready":
            raise ValueError(f"its model is not ready ({state}).")
        text, _, _ = client.predict(
            prompt=VISIT_PROMPT, settings=VISIT_SETTINGS, trace=False, api_name="/answer"
        )
        return " ".join(text.split())[:SHOWN_LETTERS]
    finally:
        client.close()
