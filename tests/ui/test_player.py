"""A run as a table and as one HTML file: nothing is lost, and nothing in a trace is ever run."""

import csv
import io
import json
import re
from html.parser import HTMLParser

from programs import module, needs_node

from specdemo.cli import parser as cli
from specdemo.trace.codec import dumps
from specdemo.trace.events import ModelInfo, Node, Origin, RunStarted, Status, Verified
from specdemo.trace.replay import NODE_FIELDS, csv_table, parse
from specdemo.ui import player
from specdemo.ui.words import VIEW

RECORDED = sorted((player.SCRIPTS.parent / "runs").glob("*.jsonl"))
HOSTILE = (
    *("=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\t=1", "\r\n=1", 'say "a, b"'),
    *("</script><script>window.hacked=1</script><!--", "</SCRIPT >", "\u2028\u2029"),
    "\N{WOMAN}\u200d\N{PERSONAL COMPUTER}",
)


def hostile_trace() -> str:
    nodes = tuple(
        Node(place, text, place - 1, Status.REJECTED, 0.5, 0.25, 1e-7, 0.125, origin=Origin.DRAWN)
        for place, text in enumerate(HOSTILE)
    )
    own = Node(99, "</script>", status=Status.CORRECTION)
    return dumps(
        [
            RunStarted("plain", "nothing", HOSTILE[7], {}, ModelInfo("tiny")),
            Verified("plain", 0, nodes, (), own, 0.01, 0.02, 0.001, 0.031),
        ]
    )


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


class Blocks(HTMLParser):
    """Elements of a page with their attributes, and the text of the scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        tag, attributes = self.tags[-1] if self.tags else ("", {})
        if tag == "script":
            name = attributes.get("id") or attributes.get("type") or "plain"
            self.data[name] = self.data.get(name, "") + data


def test_a_table_has_a_row_for_each_token():
    for path in RECORDED:
        text = path.read_text(encoding="utf-8")
        verified = [event for event in parse(text).trace if isinstance(event, Verified)]
        table = rows(csv_table(text))
        assert len(table) == sum(len(e.nodes) + bool(e.next) for e in verified), path.stem
        own = [row for row in table if row["node"] == ""]
        ids = [event.next.token_id for event in verified if event.next]
        assert [int(row["token_id"]) for row in own] == ids, path.stem
        assert {row["parent"] for row in own} == {""}, path.stem
        assert float(table[-1]["elapsed_seconds"]) == verified[-1].elapsed_seconds, path.stem


def test_no_cell_is_a_formula_and_every_text_is_whole():
    table = rows(csv_table(hostile_trace()))
    formulas = [f"'{text}" for text in HOSTILE[:6]]
    assert [row["text"] for row in table] == [*formulas, *HOSTILE[6:], "</script>"]
    assert float(table[0]["accept_prob"]) == 1e-7


@needs_node
def test_the_script_writes_the_same_table(tmp_path):
    hostile = tmp_path / "hostile.jsonl"
    trace = hostile_trace().replace('"parent":-1,', "")  # the default
    hostile.write_text(trace, encoding="utf-8", newline="")
    paths = [hostile, *RECORDED[:2]]
    code = f"""
        import {{ readFileSync }} from "node:fs";
        import {{ csvTable }} from {json.dumps((player.SCRIPTS / "play/export.js").as_uri())};
        import {{ readTrace }} from {json.dumps((player.SCRIPTS / "core/lines.js").as_uri())};
        const table = (path) => csvTable(readTrace(readFileSync(path, "utf8")).items);
        console.log(JSON.stringify({json.dumps([str(path) for path in paths])}.map(table)));
    """
    ends = ("_prob", "_seconds", "draw", "survival", "confidence")
    numbers = [name for name in NODE_FIELDS if name.endswith(ends)]
    for path, table in zip(paths, json.loads(module(code)), strict=True):
        assert table.startswith(",".join(NODE_FIELDS) + "\r\n"), path.stem
        ours, theirs = rows(csv_table(path.read_text(encoding="utf-8"))), rows(table)
        for row in (*ours, *theirs):
            row.update({name: row[name] and float(row[name]) for name in numbers})
        assert ours == theirs, path.stem


def test_a_replay_holds_the_trace_and_nothing_of_it_is_markup():
    trace = hostile_trace()
    text = player.player_page(VIEW, {"title": "<b>title</b>", "trace": trace})
    page = Blocks(text)
    assert json.loads(page.data["sd-run"]) == {"title": "<b>title</b>", "trace": trace}
    assert json.loads(page.data["sd-words"]) == VIEW
    empty = Blocks(player.player_page(VIEW))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in empty.tags]
    assert "\u2028" not in page.data["sd-run"]
    assert len(text) - len(trace) < 600_000  # bytes of the player


def test_a_replay_sends_no_request():
    page = Blocks(player.player_page(VIEW))
    policies = [a["content"] for _, a in page.tags if a.get("http-equiv")]
    assert policies == [player.REPLAY_POLICY]
    assert player.REPLAY_POLICY.startswith("default-src 'none';")
    assert not re.search(r"https?:", player.REPLAY_POLICY)
    assert not [a for _, a in page.tags if "src" in a or "href" in a]
    styles = "".join(path.read_text("utf-8") for path in player.style_files())
    assert not re.search(r"@import|url\((?!#|[\"']?data:)", styles)


def test_every_import_of_the_player_is_found_in_its_import_map():
    page = Blocks(player.player_page(VIEW))
    found = json.loads(page.data["importmap"])["imports"]
    scripts = player.modules("site/replay.js")
    assert set(found) == {player.bare(name) for name in scripts}
    assert {"play/view.js", "parts/dom.js", "charts/charts.js"} <= set(scripts)
    for source in scripts.values():
        code = re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)
        specifiers = re.findall(r"""(?:\bfrom|\bimport\(?)\s*["']([^"']+)["']""", code)
        assert set(specifiers) <= set(found)
    assert player.bare("site/replay.js") in page.data["module"]


def test_only_relative_imports_become_bare():
    source = """import { a } from "./a.js";
import{b}from './b.js';
import
  { c } from "./c.js";
import "./d.js";
export * from "./e.js";
const f = import("./f.js");
const text = "see ./g.js from here";
import { h } from "../core/h.js";
import fs from "node:fs";
"""
    expected = source
    for name in "abcdef":
        expected = expected.replace(f"./{name}.js", f"specdemo/parts/{name}.js")
    expected = expected.replace("../core/h.js", "specdemo/core/h.js")
    assert player.bare_imports(source, "parts/x.js") == expected


def test_the_command_writes_the_table_and_the_replay(tmp_path):
    table, page = tmp_path / "run.csv", tmp_path / "run.html"
    assert cli.main(["export", str(RECORDED[0]), "--csv", str(table), "--html", str(page)]) == 0
    assert table.read_bytes().startswith("\ufefflane,step,".encode())
    assert b"\r\n" in table.read_bytes()
    assert b"\r\r\n" not in table.read_bytes()
    run = json.loads(Blocks(page.read_text(encoding="utf-8")).data["sd-run"])
    assert run["trace"].count("\n") == RECORDED[0].read_text(encoding="utf-8").count("\n")
