"""Docstrings and comments use standard technical English: no dialect words, no clause that starts with a bare "what".

`python tests/test_language.py [PATH ...]` lists the sentences that match, with file and line.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

FOLDERS = [Path(__file__).parents[1] / name for name in ("specdemo", "tests")]

# A clause without a noun: "what it takes", "who asks", "whose bits", "what of it is cached".
BARE_CLAUSE = re.compile(r"^who\b|\b(what|whatever|whoever)\b", re.IGNORECASE)
# A docstring that is no sentence: it starts with a relative word or a preposition.
FRAGMENT = re.compile(r"^(what|where|who|whose|of|that|those|how|beyond|see)\b", re.IGNORECASE)
DIALECT = re.compile(
    r"""\b(
    says? | said | saying | tells? | told | asks? | asked | asking | knows? | wants? | wanted
    | stands? | stood | standing | takes?\ (over|what|it|them|long) | likeliest | anew | at\ once | unharmed
    | go(es)?\ on | going\ on | went\ on | gone\ on | go\ together | begins? | begun | began
    | beside | besides | judges? | judged | judging | foresees? | foreseen | lanes? | pieces? | dear | dearer | dearest
    | nobody | somebody | whichever\ way | a\ look | looks? | looked | believes? | believed | promises? | promised
    | comes?\ together | hangs? | hung | lent | harm | harms? | meant | thinks | thought | holds? | held
    | brings? | brought | gone | gives?\ up | learns?\ of | hears? | heard | likes? | he | she | him | his | her
    | share\ of | places? | together | keeps? | kept | anyhow
    )\b(?!:)""",  # a parameter may have such a name
    re.IGNORECASE | re.VERBOSE,
)
CODE = re.compile(r"``.*?``|`[^`]*`|https?://\S+|\"[^\"]*\"|\*[^*]*\*")
# A string, or a comment outside of strings. `tokenize` takes much longer.
LEXEME = re.compile(
    r""""{3}(?:\\.|[^\\])*?"{3}|'{3}(?:\\.|[^\\])*?'{3}"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|(?P<comment>\#[^\n]*)""",
    re.DOTALL,
)
DIRECTIVE = re.compile(r"^(noqa|type:|fmt:|pragma|pylint|mypy|!|-\*-)")


def sentences(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring and each block of comments of a module."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for item in body if isinstance(body, list) else ():
            value = item.value if isinstance(item, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.lineno, value.value
    block, last, line, seen = list[str](), -1, 1, 0
    for found in LEXEME.finditer(source):
        line, seen = line + source.count("\n", seen, found.start()), found.start()
        text = (found["comment"] or "").lstrip("#").strip()
        if not text or DIRECTIVE.match(text):
            continue
        before = source[source.rfind("\n", 0, found.start()) + 1 : found.start()]
        if block and line == last + 1 and not before.strip():
            block.append(text)
        else:
            if block:
                yield last - len(block) + 1, " ".join(block)
            block = [text]
        last = line
    if block:
        yield last - len(block) + 1, " ".join(block)


def findings(path: Path) -> Iterator[tuple[int, str, str]]:
    """Line, kind (`clause`, `dialect`, or empty for a good sentence) and text."""
    for line, text in sentences(path):
        bare = CODE.sub("x", text)
        if BARE_CLAUSE.search(bare):
            yield line, "clause", text
        elif FRAGMENT.match(bare.strip()) or DIALECT.search(bare):
            yield line, "dialect", text
        else:
            yield line, "", text


def python_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files among the paths, and all Python files in the folders among them."""
    for path in paths:
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))


def test_few_sentences_use_the_old_dialect_or_have_a_clause_without_a_noun() -> None:
    kinds = [kind for path in python_files(FOLDERS) for _, kind, _ in findings(path)]
    clauses, dialect = kinds.count("clause") / len(kinds), kinds.count("dialect") / len(kinds)
    assert clauses <= 0.01
    assert clauses + dialect <= 0.05


if __name__ == "__main__":
    files = python_files(map(Path, sys.argv[1:]) if sys.argv[1:] else FOLDERS)
    every = [(file, *found) for file in files for found in findings(file)]
    counted, rows = len(every), [row for row in every if row[2]]
    for file, row, kind, text in rows:
        sys.stdout.write(f"{file}:{row} [{kind}] {' '.join(text.split())[:200]}\n")
    clauses = sum(kind == "clause" for _, _, kind, _ in rows)
    sys.stdout.write(
        f"{counted} sentences: {100 * len(rows) / max(1, counted):.1f} % match, {100 * clauses / max(1, counted):.1f} % clauses\n"
    )
