"""A bench as one HTML file: tables and Plotly charts, everything inside, nothing from the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from specdemo.bench.report import COLUMNS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24 }
table { border-collapse: collapse; display: block; overflow-x: auto; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #d8dee4; text-align: right; white-space: nowrap }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left }
tr.mean { font-weight: 600 }
.facts td { white-space: normal; text-align: left }
pre { white-space: pre-wrap; background: #f6f8fa; padding: .7rem }
"""
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
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style><script>{get_plotlyjs()}</script></head>\n<body>{body}</body></html>\n"
    )


def drawn(chart: Figure) -> str:
    """A chart as a part of a page."""
    html: str = chart.to_html(
        full_html=False, include_plotlyjs=False, config={"displaylogo": False}
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


def table(heads: Any, body: Any) -> str:
    """Rows of anything as an HTML table; every cell is escaped."""
    head = "".join(f"<th>{escape(str(cell))}</th>" for cell in heads)
    lines = []
    for row in body:
        kind = ' class="mean"' if row[0] == "mean" else ""
        lines.append(
            f"<tr{kind}>{''.join(f'<td>{escape(_shown(cell))}</td>' for cell in row)}</tr>"
        )
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


def pass_costs(lines: Mapping[str, Sequence[Sequence[float]]]) -> Figure:
    """Lines: milliseconds of a target pass by rows. lines: (rows, seconds) by name"""
    from plotly.graph_objects import Figure, Scatter

    figure = Figure(layout=_layout("Cost of a pass by rows", "rows", "ms"))
    for name, points in lines.items():
        rows, seconds = zip(*points, strict=True)
        times = [1000 * value for value in seconds]
        figure.add_trace(Scatter(name=escape(name), x=rows, y=times, mode="lines+markers"))
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
        "xaxis": {"title": {"text": x}},
        "yaxis": {"title": {"text": y}},
        "template": "plotly_white",
        "barmode": "group",
        "height": 460,
    }
