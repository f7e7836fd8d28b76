"""Create or update a Hugging Face Space of this program: the plan of its files, front matter, requirements and variables, and its upload.

The hub's client uploads the plan; the build is followed, the page visited, and each failure explained in a sentence.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from gradio_client import Client
from gradio_client.exceptions import AppError
from huggingface_hub import HfApi, SpaceCard, SpaceHardware, SpaceInfo, get_token
from huggingface_hub.errors import BadRequestError, HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # exported, not listed
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from specdemo.cli import console
from specdemo.cli.options import app_settings
from specdemo.config.errors import UserError
from specdemo.config.strings import ASSETS
from specdemo.files.catalogue import find
from specdemo.files.hub import kind_of
from specdemo.files.progress import megabytes


def run(options: argparse.Namespace) -> int:
    """Publish a Space, or show its plan. returns: 0. Raises UserError"""
    api = None if options.dry_run else connect()  # without a token there is no need to plan
    with TemporaryDirectory(prefix="specdemo-space-") as folder:
        plan = make_plan(
            options.name,
            options.hardware,
            Path(folder),
            target=app_settings(options).target,
            private=options.private,
        )
        console.write(describe(plan))
        if api is None:
            console.note(
                "Nothing was uploaded. Whether the hub takes name and token was not asked."
            )
            return 0
        commit = publish(plan, api, console.note)
    console.write(f"{api.endpoint}/spaces/{options.name}")
    if options.wait:
        visit(follow(options.name, commit, api, console.note), console.note)
    return 0


PROJECT = ASSETS.parent
STATIC = "static"
ZERO = "zero-a10g"  # the hub's name for ZeroGPU
HARDWARE = {"zero": ZERO, "cpu": "cpu-basic", STATIC: STATIC}
WRITTEN = ("README.md", "requirements.txt", ".gitattributes")  # files made for the Space
TAG = "specdemo"  # in the front matter of every Space of this program, which recognises them by it
LEFT_OUT = ("__pycache__", "*.pyc", "*.pyi", "*.d.ts", "screenshots", ".*")
LARGE = ("*.npy", "*.safetensors")  # suffixes of files that the hub stores outside of git
MANAGED = {
    "gradio",
    "spaces",
    "huggingface-hub",
}  # preinstalled on a Space; requiring them can break its build
ZERO_TORCH = ("2.8.0", "2.9.1", "2.10.0", "2.11.0")  # versions that ZeroGPU may install


@dataclass(frozen=True, slots=True)
class SpacePlan:
    """The files and settings of a Space.

    repo: OWNER/NAME; hardware: the hub's name, or `static`
    folder: contains only the Space's files; sizes: bytes of each, by its path in the Space
    variables: of the Space's environment
    """

    repo: str
    hardware: str
    private: bool
    folder: Path
    sizes: Mapping[str, int]
    variables: Mapping[str, str]

    @property
    def sdk(self) -> str:
        return STATIC if self.hardware == STATIC else "gradio"


def make_plan(
    repo: str, hardware: str, folder: Path, *, target: str = "", private: bool = False
) -> SpacePlan:
    """Write the files of the Space to an empty folder and check them, without a network. Raises UserError.

    hardware: zero, cpu, static or the hub's name of a GPU; target: the model that the page loads
    """
    check_name(repo)
    hardware = _hardware(hardware)
    variables = {}
    if hardware == STATIC:
        from specdemo.ui.site import write_site

        write_site(folder)
    else:
        _check_target(target)
        _copy_program(folder, hardware)
        variables = {"GRADIO_SSR_MODE": "false", "SPECDEMO_TARGET": target}
    card = space_card(folder, hardware)
    card.save(folder / "README.md")
    attributes = [f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in LARGE]
    (folder / ".gitattributes").write_text("".join(attributes), encoding="utf-8")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}
    return SpacePlan(repo, hardware, private, folder, sizes, variables)


def describe(plan: SpacePlan) -> str:
    who = "private" if plan.private else "public; one that is private already stays so"
    variables = [f"{name}={value}" for name, value in plan.variables.items()]
    return "\n".join(
        [
            f"Space      {plan.repo} ({who})",
            f"Hardware   {plan.hardware}",
            f"Variables  {', '.join(variables) or 'none'}",
            f"Upload     {len(plan.sizes)} files, {megabytes(sum(plan.sizes.values()))}",
            *(f"           {line}" for line in _folders(plan.sizes)),
            *(line for name in WRITTEN for line in _written(plan.folder / name)),
        ]
    )


def _folders(sizes: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each folder, down to the second level: size, number of files, path."""
    found: dict[str, list[int]] = {}
    for path, size in sizes.items():
        parts = path.split("/")[:-1][:2]
        found.setdefault("/".join([*parts, ""]) or "./", []).append(size)
    for name, group in sorted(found.items()):
        yield f"{megabytes(sum(group)):>8}  {len(group):>4}  {name}"


def _written(path: Path) -> list[str]:
    """Return the name of a file and its indented lines; nothing if there is none."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return ["", path.name, *(f"    {line}".rstrip() for line in lines)] if lines else []


def check_name(repo: str) -> None:
    """Raise UserError if a name is not OWNER/NAME."""
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UserError("space.bad_name", repo=repo) from error
    if "/" not in repo:
        raise UserError("space.no_owner", repo=repo)


def _hardware(name: str) -> str:
    """Return the hub's name of hardware. Raises UserError if the hub's client does not list it."""
    known = sorted(item.value for item in SpaceHardware)
    found = HARDWARE.get(name, name)
    if found == STATIC or found in known:
        return found
    raise UserError("space.hardware", name=name, names=", ".join(known))


def _check_target(target: str) -> None:
    """Raise UserError for a target that a Space cannot load. No request to the hub is made for the model."""
    if Path(target).exists():
        raise UserError("space.local_target", target=target)
    if target != "auto" and "/" not in target and not find(target):
        raise UserError("space.unknown_target", target=target)


def _copy_program(folder: Path, hardware: str) -> None:
    """Copy the files that `python app.py` reads, with a requirements.txt for the hardware."""
    if not (PROJECT / "app.py").is_file():
        raise UserError("space.not_a_checkout")
    for name in ("specdemo", "assets"):
        shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for name in ("app.py", "LICENSE"):
        shutil.copyfile(PROJECT / name, folder / name)
    wanted = (PROJECT / "requirements.txt").read_text(encoding="utf-8")
    (folder / "requirements.txt").write_text(space_requirements(wanted, hardware), encoding="utf-8")


def space_requirements(text: str, hardware: str) -> str:
    """Return a requirements.txt without the packages that a Space manages itself; ZeroGPU also chooses torch.

    Raises UserError unless the program accepts each version of torch that ZeroGPU may install.
    """
    lines = []
    for line in text.splitlines():
        wanted = line.partition("#")[0].strip()
        if not wanted:
            continue
        requirement = Requirement(wanted)
        if canonicalize_name(requirement.name) in MANAGED:
            continue
        if requirement.name == "torch" and hardware == ZERO:
            allowed = requirement.specifier
            if refused := [one for one in ZERO_TORCH if not allowed.contains(one)]:
                names = ", ".join(refused)
                raise UserError("space.torch_range", requirement=requirement, names=names)
            wanted = "torch"
        lines.append(wanted)
    return "\n".join([*lines, ""])


def space_card(folder: Path, hardware: str) -> SpaceCard:
    """Return the README.md of the Space: the front matter that the hub reads, and a few sentences."""
    readme = (folder if hardware == STATIC else PROJECT) / "README.md"
    card = SpaceCard(readme.read_text(encoding="utf-8"))
    card.data["tags"] = [TAG]
    if hardware != STATIC:
        card.data["suggested_hardware"] = hardware
        card.text = (ASSETS / "cards" / "space.md").read_text(encoding="utf-8")
    return card


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


def connect() -> HfApi:
    """Return the hub's client; HF_ENDPOINT may name another hub. Raises UserError without a token."""
    if not get_token():
        raise UserError("space.no_token")
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"))


def publish(plan: SpacePlan, api: HfApi, report: Report) -> str:
    """Create or update the Space; parts that agree with the plan stay unchanged. returns: its commit. Raises UserError."""
    with told(NOTHING_CHANGED):
        user = _who(api)
        space = _find(api, plan.repo)
        if not space:
            api.create_repo(
                plan.repo,
                repo_type=KIND,
                private=plan.private,
                space_sdk=plan.sdk,
                space_hardware=None if plan.sdk == STATIC else plan.hardware,  # type: ignore[arg-type]  # a name will do
                space_variables=[{"key": k, "value": v} for k, v in plan.variables.items()] or None,
            )
            report(f"{user} has a new Space {plan.repo}.")
        else:
            _check_ours(api, space)
            if plan.private and not space.private:
                api.update_repo_settings(plan.repo, repo_type=KIND, private=True)
                report(f"{plan.repo} is private now.")
    with told("The files of the Space are as they were."):
        # One commit, so that no visitor sees half a Space. Only new files are sent; other files on the hub are deleted.
        uploaded = api.upload_folder(
            repo_id=plan.repo,
            folder_path=plan.folder,
            repo_type=KIND,
            commit_message="specdemo",
            delete_patterns="*",
        )
    commit = str(uploaded.oid)
    if space:
        if space.sha == commit:
            report("The files were up to date.")
        with told("The files are uploaded; variables or hardware may be as before."):
            _set_up(plan, api, report)
    return commit


def _who(api: HfApi) -> str:
    """Return the token's owner. Raises UserError for a token that may only read."""
    found = api.whoami()
    if found.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise UserError("space.read_only_token")
    return str(found["name"])


def _find(api: HfApi, repo: str) -> SpaceInfo | None:
    try:
        return api.space_info(repo)
    except RepositoryNotFoundError:
        return None


def _check_ours(api: HfApi, space: SpaceInfo) -> None:
    """Raise UserError for a Space that contains anything that is not this program's."""
    tags = (space.card_data.tags if space.card_data else None) or []
    if TAG in tags or len(api.list_repo_commits(space.id, repo_type=KIND)) <= 1:
        return  # the first commit is the hub's own
    raise UserError("space.taken", repo=space.id)


def _set_up(plan: SpacePlan, api: HfApi, report: Report) -> None:
    """Set the variables and the hardware of a Space that was there before."""
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
    repo: str, commit: str, api: HfApi, report: Report, poll: float = BUILD_POLL_SECONDS
) -> SpaceInfo:
    """Wait until the Space runs the uploaded commit. poll: seconds between requests. Raises UserError."""
    until, last = time.monotonic() + WAIT_SECONDS, ""
    while True:
        with told("The files are uploaded, and the hub goes on without this command."):
            runtime = api.get_space_runtime(repo)
        stage = str(runtime.stage)
        if stage != last:
            report(f"{repo}: {stage}")
        earlier = runtime.raw.get("sha", commit) != commit
        if stage not in AT_WORK and not (earlier and stage in REACHABLE):
            state = f"{stage} {runtime.raw.get('errorMessage') or ''}".strip()
            break
        if time.monotonic() > until:
            stage, state = "", f"still {stage} after 30 minutes"
            break
        last = stage
        time.sleep(poll)
    if stage not in REACHABLE:
        raise UserError("space.not_running", repo=repo, state=state)
    with told("The Space runs."):
        return api.space_info(repo)


@contextmanager
def told(unaffected: str) -> Iterator[None]:
    """Convert the errors of the hub's client. unaffected: sentence about the state after an error"""
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
            code = "space.connection"
            raise UserError(code, error=_line(error), unaffected=unaffected) from error
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
    """Check that a page is one of this program. Raises httpx.HTTPError, and ValueError for any other page."""
    from specdemo.ui.site import MARK

    headers = {"authorization": f"Bearer {token}"} if token else {}
    answer = httpx.get(page, headers=headers, follow_redirects=True, timeout=60).raise_for_status()
    if MARK not in answer.text:
        raise ValueError("it is not this program's site.")


def _ask(page: str, token: str | None, poll: float) -> str:
    """Return the beginning of an answer, once the model is loaded."""
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
