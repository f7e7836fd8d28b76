"""Writes what is generated: the module map, the table of methods, the events' TypeScript. `--check` only compares."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from specdemo.trace.typescript import declarations

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "specdemo"
TYPES = "assets/view/types.d.ts"


def module_map(root: Path = ROOT) -> str:
    """Every module with the first line of its docstring, a folder a table."""
    blocks = []
    folders = sorted({path.parent for path in (root / PACKAGE).rglob("*.py")})
    for folder in folders:
        rows = [
            f"| `{path.name}` | {_first_line(path)} |"
            for path in sorted(folder.glob("*.py"))
            if path.name != "__init__.py"
        ]
        title = f"### `{folder.relative_to(root).as_posix()}/`"
        package = folder / "__init__.py"
        about = _first_line(package) if package.is_file() else ""
        table = "\n".join(["| module | what it is |", "|---|---|", *rows]) if rows else ""
        blocks.append("\n\n".join(part for part in (title, about, table) if part))
    return "\n\n".join(blocks)


def methods_table() -> str:
    """The table of drafting methods, from the one that the program uses."""
    from specdemo.drafters.methods import METHODS, NEEDED

    rows = []
    for name, method in METHODS.items():
        options = ", ".join(f"`{option}`" for option in method.options) or "none"
        needs = ", ".join(NEEDED[need] for need in method.needs) or "nothing"
        exact = "**lossy**" if method.lossy else "exact"
        rows.append(
            f"| `{name}` | {method.title} | {method.summary} | {needs} | {exact} | {options} "
            f"| {method.paper or '-'} |"
        )
    head = [
        "| name | title | what it does | needs | output | settings | published |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows])


def between(text: str, name: str, content: str) -> str:
    """Replace what stands between `<!-- name:start -->` and `<!-- name:end -->`."""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    before, rest = text.split(start)
    after = rest.split(end)[1]
    return f"{before}{start}\n\n{content}\n\n{end}{after}"


def generated(root: Path = ROOT) -> dict[Path, str]:
    """Each file with generated parts, as it should be now."""
    from specdemo.cli.measurements import measured_tables, readme_table
    from specdemo.cli.parser import build_parser
    from specdemo.cli.reference import commands_reference, settings_reference

    parts = [
        ("docs/architecture.md", "map", module_map(root)),
        ("docs/algorithm.md", "methods", methods_table()),
        ("docs/measured.md", "tables", measured_tables(root)),
        ("docs/reference.md", "commands", commands_reference(build_parser())),
        ("docs/reference.md", "settings", settings_reference()),
        ("README.md", "measured", readme_table(root)),
    ]
    documents: dict[Path, str] = {}
    for name, marker, content in parts:
        path = root / name
        text = documents.get(path) or path.read_text(encoding="utf-8")
        documents[path] = between(text, marker, content)
    return {**documents, root / TYPES: declarations()}


def stale(root: Path = ROOT) -> list[Path]:
    """Files whose generated parts are not up to date, or that are missing."""
    return [
        path
        for path, text in generated(root).items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].replace("|", "\\|")


def main(arguments: list[str]) -> int:
    """`python -m specdemo.cli.docs` writes; with `--check` it names what is out of date and fails."""
    outdated = stale()
    if "--check" in arguments:
        for path in outdated:
            sys.stderr.write(
                f"{path.relative_to(ROOT)} is out of date: python -m specdemo.cli.docs\n"
            )
        return 1 if outdated else 0
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
