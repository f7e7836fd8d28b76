"""The rules of import, modules without output, and the generated documents."""

from __future__ import annotations

import ast
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from programs import python

from tools import docs

ROOT = Path(__file__).resolve().parents[1]
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
            # `from specdemo import docs` names a module, `from specdemo.config.errors import UserError` does not.
            names |= (
                {f"{base}.{alias.name}" for alias in node.names} if base == "specdemo" else {base}
            )
    return names


def in_layers(*layers: str) -> list[Path]:
    return [path for path in MODULES if layer_of(path) in layers]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", in_layers(*ALLOWED), ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    layer = layer_of(path)
    inner = {room_of(name) for name in imports_of(path) if name.startswith("specdemo.")}
    assert inner <= ALLOWED[layer] | {layer}


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


@pytest.mark.parametrize("path", sorted((PACKAGE / "ui").rglob("*.py")), ids=name_of)
def test_tabs_are_self_contained(path: Path) -> None:
    """No tab imports another; only the page, and the site that is made of the same parts, import tabs."""
    outside = {PACKAGE / "ui" / "app.py", PACKAGE / "ui" / "site.py"}
    tabs = {name for name in imports_of(path) if name.startswith("specdemo.ui.tabs")}
    assert not tabs or path in outside


DOOR = {
    f"specdemo.kernels.{name}" for name in ("runtime", "plan", "packing", "blocks", "cpu_features")
}


@pytest.mark.parametrize(
    "path", [one for one in MODULES if layer_of(one) != "kernels"], ids=name_of
)
def test_the_kernels_have_one_door(path: Path) -> None:
    """Weights are packed by `packing` and `blocks`, everything else goes through `runtime`."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and node.module == "specdemo.kernels":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    assert {name for name in found if name.startswith("specdemo.kernels")} <= DOOR


@pytest.mark.parametrize("path", in_layers("trace", "config"), ids=name_of)
def test_the_trace_needs_pydantic_at_most(path: Path) -> None:
    outside = {name.partition(".")[0] for name in imports_of(path)} - {"specdemo", "__future__"}
    assert outside <= {*sys.stdlib_module_names, "pydantic", "pydantic_core"}


@pytest.mark.parametrize("path", [*in_layers("ui"), ROOT / "app.py"], ids=name_of)
def test_the_page_never_imports_the_models(path: Path) -> None:
    assert not {name.partition(".")[0] for name in imports_of(path)} & HEAVY


@pytest.mark.parametrize("path", in_layers(*UP_TO_SESSION), ids=name_of)
def test_nothing_up_to_the_session_prints_sleeps_or_knows_the_page(path: Path) -> None:
    assert not {name.partition(".")[0] for name in imports_of(path)} & {"gradio", "plotly", "rich"}
    calls = {
        ast.unparse(node.func) for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)
    }
    assert not calls & {"print", "sleep", "time.sleep"}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_has_a_docstring(path: Path) -> None:
    assert ast.get_docstring(parsed(path))


@pytest.mark.parametrize(
    "module",
    [
        "specdemo.session.studio",
        "specdemo.trace.replay",
        "specdemo.config.settings",
        "specdemo.drafters.methods",
        "specdemo.cli.parser",
        "specdemo.ui.app",
    ],
)
def test_importing_loads_no_model_library(module: str) -> None:
    code = f"import sys, {module}; sys.exit(', '.join(sorted({HEAVY!r} & set(sys.modules))) or 0)"
    python("-c", code)


def test_the_list_of_methods_loads_no_numpy() -> None:
    code = "import sys, specdemo.drafters.methods; sys.exit('numpy' in sys.modules)"
    python("-c", code)


def test_the_generated_documents_are_up_to_date() -> None:
    outdated = [path.name for path in docs.stale()]
    assert not outdated, "run: python -m tools.docs"
