"""The rules of import, modules without output, and the generated documents."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from programs import ROOT, python

from tools import docs

PACKAGE = ROOT / "specdemo"
HEAVY = {"torch", "transformers", "bitsandbytes", "accelerate"}

# Each room and the rooms that it may import; a room inside another is named with a dot.
MODELS = {"models", "models.decoders", "models.networks"}
BELOW_SESSION = {"config", "trace", "kernels", "files", "engine", *MODELS, "drafters"}
UP_TO_SESSION = {*BELOW_SESSION, "attach", "session"}
ALLOWED = {
    "config": set[str](),
    "kernels": set[str](),
    "trace": {"config"},
    "files": {"config", "trace"},
    "attach": {"config", "trace", "files", "engine"},
    "engine": {"config", "trace", "kernels"},
    "models": {"config", "trace", "kernels", "files", "engine", *MODELS},
    "models.decoders": {"config", "trace", "kernels", "files", "engine", "models"},
    "models.networks": {"config", "trace", "kernels", "files", "engine", *MODELS},
    "drafters": BELOW_SESSION,
    "session": UP_TO_SESSION,
    "bench": UP_TO_SESSION,
    "training": UP_TO_SESSION,
    "ui": {"config", "trace", "files", "attach", "session"},
    "api": UP_TO_SESSION,
}
MODULES = sorted(PACKAGE.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def room_of(module: str) -> str:
    """`engine` for specdemo.engine.loop, `models.files` for specdemo.files.hub."""
    parts = module.split(".")[1:]
    inner = ".".join(parts[:2])
    return inner if inner in ALLOWED else parts[0]


def layer_of(path: Path) -> str:
    return room_of(".".join(path.relative_to(ROOT).with_suffix("").parts))


@cache
def imports_of(path: Path) -> set[str]:
    """Every imported module's dotted name, also the ones inside functions and `if TYPE_CHECKING`."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; say where it comes from"
            base = node.module or ""
            # `from specdemo import api` names a module, `from specdemo.config.errors import UserError` does not.
            of_modules = base in ("specdemo", "specdemo.kernels")
            names |= {f"{base}.{alias.name}" for alias in node.names} if of_modules else {base}
    return names


def in_layers(*layers: str) -> list[Path]:
    return [path for path in MODULES if layer_of(path) in layers]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def found_in(paths: Iterable[Path], forbidden: Callable[[Path], set[str]]) -> dict[str, set[str]]:
    """Return what a rule forbids in each module, for the modules that contain any of it."""
    found = {name_of(path): forbidden(path) for path in paths}
    return {name: names for name, names in found.items() if names}


def inner_imports(path: Path, below: str | tuple[str, ...] = "specdemo.") -> set[str]:
    return {name for name in imports_of(path) if name.startswith(below)}


def roots(path: Path) -> set[str]:
    """Top packages that a module imports."""
    return {name.partition(".")[0] for name in imports_of(path)}


def test_imports_point_one_way() -> None:
    def wrong(path: Path) -> set[str]:
        layer = layer_of(path)
        return {room_of(name) for name in inner_imports(path)} - ALLOWED[layer] - {layer}

    assert found_in(in_layers(*ALLOWED), wrong) == {}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Also inside functions, and for names that only type checkers read."""
    known = {name_of(path).removesuffix(".py").replace("/", "."): path for path in MODULES}
    graph = {
        module: {
            f"{node.module}.{name.name}" if f"{node.module}.{name.name}" in known else node.module
            for node in ast.walk(parsed(path))
            if isinstance(node, ast.ImportFrom) and node.module
            for name in node.names
        }
        for module, path in known.items()
    }
    TopologicalSorter(graph).prepare()


def test_tabs_are_self_contained() -> None:
    """No tab imports another; only the page, and the site that is made of the same parts, import tabs."""
    others = {*in_layers("ui")} - {PACKAGE / "ui" / "app.py", PACKAGE / "ui" / "site.py"}
    assert found_in(others, lambda path: inner_imports(path, "specdemo.ui.tabs")) == {}


def test_commands_import_neither_the_parser_nor_each_other() -> None:
    commands = (path for path in MODULES if path.parent == PACKAGE / "cli" / "commands")
    others = ("specdemo.cli.parser", "specdemo.cli.commands")
    assert found_in(commands, lambda path: inner_imports(path, others)) == {}


DOOR = {
    f"specdemo.kernels.{name}" for name in ("runtime", "plan", "packing", "blocks", "cpu_features")
}


def test_the_kernels_have_one_door() -> None:
    """Weights are packed by `packing` and `blocks`, everything else goes through `runtime`."""

    outside = (path for path in MODULES if layer_of(path) != "kernels")
    assert found_in(outside, lambda path: inner_imports(path, "specdemo.kernels") - DOOR) == {}


def test_the_trace_needs_pydantic_at_most() -> None:
    known = {*sys.stdlib_module_names, "pydantic", "pydantic_core", "specdemo", "__future__"}
    assert found_in(in_layers("trace", "config"), lambda path: roots(path) - known) == {}


def test_the_page_never_imports_the_models() -> None:
    page = [*in_layers("ui"), ROOT / "app.py"]
    assert found_in(page, lambda path: roots(path) & HEAVY) == {}


def test_nothing_up_to_the_session_prints_sleeps_or_knows_the_page() -> None:
    def wrong(path: Path) -> set[str]:
        calls = {
            ast.unparse(node.func) for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)
        }
        page = roots(path) & {"gradio", "plotly", "rich"}
        return page | calls & {"print", "sleep", "time.sleep"}

    assert found_in(in_layers(*UP_TO_SESSION), wrong) == {}


def test_every_module_has_a_docstring() -> None:
    assert [name_of(path) for path in MODULES if not ast.get_docstring(parsed(path))] == []


def test_importing_loads_no_model_library() -> None:
    """The list of methods does not load numpy either."""
    modules = (
        "drafters.methods",
        "trace.replay",
        "config.settings",
        "session.studio",
        "cli.parser",
        "ui.app",
    )
    code = f"""
import importlib, sys
for module in {modules!r}:
    importlib.import_module(f"specdemo.{{module}}")
    unwanted = {HEAVY!r} | ({{"numpy"}} if module == "drafters.methods" else set())
    assert not unwanted & set(sys.modules), module
"""
    python("-c", code)


def test_the_generated_documents_are_up_to_date() -> None:
    outdated = [path.name for path in docs.stale()]
    assert not outdated, "run: python -m tools.docs"
