"""A bench as one HTML file: tables and Plotly charts, everything inside, nothing from the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from specdemo.bench.report import COLUMNS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

STYLE = """
:root { color-scheme: light dark; --line: #d8dee4; --back: #f6f8fa }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24; background: #fff }
h1 { overflow-wrap: anywhere }
h2 { margin: 2.2rem 0 .4rem }
table { border-collapse: collapse; display: block; overflow-x: auto; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; vertical-align: top }
.text { text-align: left }
.long { white-space: normal; min-width: 14rem }
tr.mean { font-weight: 600 }
.facts td + td { white-space: normal; overflow-wrap: anywhere }
.facts .long { min-width: 0 }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--back); padding: .7rem }
@media (prefers-color-scheme: dark) {
  :root { --line: #30363d; --back: #161b22 }
  body { color: #d7dde3; background: #0d1117 }
}
"""
INK, GRID = "#7d8590", "rgba(125, 133, 144, 0.28)"  # of charts, readable on light and dark
LONG = 60  # characters of a cell that may break
PARTS = {"draft": "drafting", "verify": "target's passes", "overhead": "everything else"}
Row = Mapping[str, Any]


def render(document: Mapping[str, Any]) -> str:
    """The page. document: what `bench --json` writes"""
    rows: list[Row] = document["rows"]
    facts = _facts(document)
    title = f"specdemo bench: {document['target']['name']}"
    charts = [
        speedups(rows),
        passes_and_time(rows),
        pass_costs({"as measured at loading": document["costs"]["verify"]}),
        time_split(rows),
    ]
    throughput = [list(result.values()) for result in document["throughput"]]
    parts = [
        facts_table(facts),
        f"<pre>{escape(document['command'])}</pre>",
        "".join(f"<p>{escape(note)}</p>" for note in document["notes"]),
        "<h2>Lanes</h2>",
        "<p>Speedups are over plain decoding of the same prompts on this engine. Reading the prompt and "
        "warming up are not counted. The floor is computed: bytes of weights over measured bandwidth.</p>",
        _lanes(rows),
        *map(drawn, charts),
        "<h2>Several conversations at once</h2>" if throughput else "",
        table(document["throughput"][0], throughput) if throughput else "",
    ]
    return page(title, parts)


def page(title: str, parts: Sequence[str]) -> str:
    """A page of HTML parts under a title, with what its charts need."""
    from plotly.offline import get_plotlyjs

    body = "\n".join(part for part in (f"<h1>{escape(title)}</h1>", *parts) if part)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>"
        f"<style>{STYLE}</style><script>{get_plotlyjs()}</script></head>\n<body>{body}</body></html>\n"
    )


def drawn(chart: Figure) -> str:
    """A chart as a part of a page."""
    html: str = chart.to_html(
        full_html=False, include_plotlyjs=False, config={"displaylogo": False, "responsive": True}
    )
    return html


def facts_table(facts: Mapping[str, object]) -> str:
    """What was measured, as a part of a page."""
    return f'<div class="facts">{table(("what", "value"), facts.items())}</div>'


def _facts(document: Mapping[str, Any]) -> dict[str, str]:
    """What was measured, where and when, in words."""
    target, draft = document["target"], document["draft"]
    facts = {
        "machine": document["machine"],
        "date": document["date"],
        "target": f"{target['name']}, {target['precision']} ({target['kernel']})",
        "draft": f"{draft['name']} ({draft['kernel']})" if draft else "none",
        "suite": f"{document['suite']}: {document['prompts']} prompts, run {document['repeat']} times",
        "limits": ", ".join(
            f"{name.replace('_', ' ')} {value}" for name, value in document["limits"].items()
        ),
        "versions": _listed(document["versions"]),
    }
    return facts | {f"peer {name}": _listed(facts) for name, facts in document["peers"].items()}


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _lanes(rows: Sequence[Row]) -> str:
    shown = [key for key in COLUMNS if any(row[key] is not None for row in rows)]
    cells = [
        [
            row["task"],
            row["lane"],
            *("-" if row[key] is None else COLUMNS[key][1](row[key]) for key in shown),
        ]
        for row in rows
    ]
    return table(("task", "lane", *(COLUMNS[key][0] for key in shown)), cells)


NUMBERS = ("", *"0123456789+-")  # how what stands to the right begins
_LONG = ' class="text long"'


def table(heads: Any, body: Any) -> str:
    """Rows of anything as an HTML table; every cell is escaped. A column of numbers stands to the right."""
    rows = [[_shown(cell) for cell in row] for row in body]
    columns = list(zip(*rows, strict=True)) or [()] * len(heads)
    kinds = [
        "" if all(cell[:1] in NUMBERS for cell in column) else ' class="text"' for column in columns
    ]
    head = "".join(
        f"<th{kind}>{escape(str(cell))}</th>" for kind, cell in zip(kinds, heads, strict=True)
    )
    lines = []
    for row in rows:
        cells = [
            f"<td{_LONG if len(cell) > LONG else kind}>{escape(cell)}</td>"
            for kind, cell in zip(kinds, row, strict=True)
        ]
        mean = ' class="mean"' if row[0] == "mean" else ""
        lines.append(f"<tr{mean}>{''.join(cells)}</tr>")
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _shown(cell: object) -> str:
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def speedups(rows: Sequence[Row]) -> Figure:
    """Grouped bars: speedup over plain decoding by task, a colour a lane; whiskers are quartiles."""
    from plotly.graph_objects import Bar, Figure

    figure = Figure(layout=_layout("Speedup by task", "task", "times plain decoding"))
    for lane in _names(rows):
        of_lane = [row for row in rows if row["lane"] == lane and row["speedup"] is not None]
        quartiles = [row["speedup_quartiles"] or [row["speedup"]] * 2 for row in of_lane]
        pairs = list(zip(of_lane, quartiles, strict=True))
        figure.add_trace(
            Bar(
                name=escape(lane),
                x=[escape(row["task"]) for row in of_lane],
                y=[row["speedup"] for row in of_lane],
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": [upper - row["speedup"] for row, (_, upper) in pairs],
                    "arrayminus": [row["speedup"] - lower for row, (lower, _) in pairs],
                    "visible": any(row["speedup_quartiles"] for row in of_lane),
                },
            )
        )
    return figure


def passes_and_time(rows: Sequence[Row]) -> Figure:
    """Points: tokens that a pass gives, and what a token costs on the wall clock; one a task and lane."""
    from plotly.graph_objects import Figure, Scatter

    layout = _layout("Tokens per pass against wall time", "tokens per pass", "ms per token")
    figure = Figure(layout=layout)
    for lane in _names(rows):
        points = [
            row
            for row in rows
            if row["lane"] == lane and row["tokens_per_step"] and row["tokens_per_second"]
        ]
        figure.add_trace(
            Scatter(
                name=escape(lane),
                mode="markers",
                x=[row["tokens_per_step"] for row in points],
                y=[1000 / row["tokens_per_second"] for row in points],
                text=[escape(row["task"]) for row in points],
                marker={"size": [14 if row["task"] == "mean" else 8 for row in points]},
            )
        )
    return figure


APART = 5.0  # times as slow: lines that are further from each other need a scale by factors


def pass_costs(
    lines: Mapping[str, Sequence[Sequence[float]]], title: str = "Cost of a pass by rows"
) -> Figure:
    """Lines: milliseconds of a target pass by rows. lines: (rows, seconds) by name"""
    from plotly.graph_objects import Figure, Scatter

    figure = Figure(layout=_layout(title, "rows of the pass", "ms a pass"))
    for name, points in lines.items():
        rows, seconds = zip(*points, strict=True)
        times = [1000 * value for value in seconds]
        figure.add_trace(Scatter(name=escape(name), x=rows, y=times, mode="lines+markers"))
    firsts = [points[0][1] for points in lines.values()]
    if max(firsts) > APART * min(firsts):
        figure.update_yaxes(type="log", title="ms a pass, tenfold a line", dtick=1)
    else:
        figure.update_yaxes(rangemode="tozero")
    return figure


def time_split(rows: Sequence[Row]) -> Figure:
    """Stacked bars: where a lane's time went, for the lanes that report it."""
    from plotly.graph_objects import Bar, Figure

    means = [row for row in rows if row["task"] == "mean" and row["verify_share"]]
    figure = Figure(layout={**_layout("Time by lane", "", "share of the time"), "barmode": "stack"})
    for part, title in PARTS.items():
        shares = [row[f"{part}_share"] for row in means]
        figure.add_trace(Bar(name=title, x=[escape(row["lane"]) for row in means], y=shares))
    figure.update_yaxes(tickformat=".0%")
    return figure


def _names(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["lane"] for row in rows))


def _layout(title: str, x: str, y: str) -> dict[str, Any]:
    return {
        "title": {"text": title},
        "xaxis": {"title": {"text": x}, "gridcolor": GRID, "zerolinecolor": GRID},
        "yaxis": {"title": {"text": y}, "gridcolor": GRID, "zerolinecolor": GRID},
        "template": "plotly_white",
        "paper_bgcolor": "rgba(0, 0, 0, 0)",
        "plot_bgcolor": "rgba(0, 0, 0, 0)",
        "font": {"color": INK},
        "legend": {"orientation": "h", "y": -0.25},
        "margin": {"l": 60, "r": 20},
        "barmode": "group",
        "height": 460,
    }
