"""Nothing that is fetched runs: no pickle, no code of model repositories, every revision pinned."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import yaml
from programs import ROOT

from specdemo.files.catalogue import entries

SOURCES = [*(ROOT / "specdemo").rglob("*.py"), *ROOT.glob("*.py")]
UNPICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """The calls of a file, each with its dotted name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def options(call: ast.Call) -> dict[str, str]:
    return {key.arg or "": ast.unparse(key.value) for key in call.keywords}


def test_nothing_is_unpickled():
    suspects = "|".join((*UNPICKLES, r"\bload\(", r"\beval\(", r"\bexec\("))
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        if not re.search(suspects, text):
            continue
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & UNPICKLES, path
        for name, call in calls(path):
            given = options(call)
            if name == "torch.load":
                assert given.get("weights_only") == "True", path
            if name in ("np.load", "numpy.load"):  # off by default
                assert given.get("allow_pickle") in (None, "False"), path
            assert name not in ("eval", "exec", "yaml.load"), path


def test_no_code_of_a_model_repository_runs():
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"""trust_remote_code["']?\s*[=:](?!\s*False)""", text), path
        assert not re.search(r"\btorch\.hub\b|use_safetensors=False", text), path


def test_every_model_of_the_catalogue_is_one_commit_or_one_file():
    for entry in entries():
        if entry.gguf:
            assert re.fullmatch(r"[0-9a-f]{64}", entry.gguf.sha256)
        elif entry.repo:
            assert re.fullmatch(r"[0-9a-f]{40}", entry.revision or ""), entry.name


def test_the_workflow_checks_pinned_packages_for_known_faults():
    workflow = yaml.safe_load((ROOT / ".github/workflows/audit.yml").read_text(encoding="utf-8"))
    steps = [step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"]]
    [audit] = [step for step in steps if "pip-audit" in step and "-r" in step]
    shipped = [path.name for path in ROOT.glob("requirements*.txt")]
    assert all(f"-r {name}" in audit for name in shipped)
    triggers = workflow[True]  # `on` is a truth value in YAML
    assert "schedule" in triggers
    assert triggers["pull_request"]["paths"] == triggers["push"]["paths"]
    assert "requirements*.txt" in triggers["push"]["paths"]
