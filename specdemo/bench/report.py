"""One renderer of results: Markdown that is also readable in a terminal, and one HTML file with charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from specdemo.bench.results import STRINGS, Result, Row, Table
from specdemo.config.strings import ASSETS, Json, JsonView

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LONG_CELL = 60  # characters, from which a cell may break
NUMBERS = ("", *"0123456789+-")  # first characters of cells that are aligned to the right
LOG_FACTOR = 5.0  # between the slowest and the fastest line, from which the axis is logarithmic
PAGE = ASSETS / "cards/report.html"


def markdown(table: Table) -> str:
    """Return a table whose columns are aligned, for documents and terminals."""
    body = [[str(cell) for cell in row] for row in table.rows]
    widths = [max(map(len, column)) for column in zip(table.columns, *body, strict=True)]
    rows = [table.columns, ["-" * width for width in widths], *body]
    return "\n".join("| " + " | ".join(map(str.ljust, cells, widths)) + " |" for cells in rows)


def text(result: Result) -> str:
    """Return all tables as Markdown, each new title with its explanation, and the notes."""
    blocks, before = list[str](), ("", "")
    for table in result.tables:
        if (table.title, table.about) != before:
            blocks += filter(None, [table.title and f"{table.title}:", table.about])
        before = (table.title, table.about)
        blocks.append(markdown(table))
    return "\n\n".join([*blocks, *result.notes])


def page(result: Result, charts: Sequence[Figure]) -> str:
    """Return one HTML file that opens without a network; every text is escaped."""
    from jinja2 import Environment
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    def kinds(table: Table) -> list[Markup]:
        columns = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
        numeric = [all(str(cell)[:1] in NUMBERS for cell in column) for column in columns]
        return [Markup("" if one else ' class="text"') for one in numeric]

    facts = {"machine": result.machine, "date": result.date} | result.facts
    options = {"displaylogo": False, "responsive": True}
    return (
        Environment(autoescape=True)
        .from_string(PAGE.read_text(encoding="utf-8"))
        .render(
            result=result,
            facts=Table(("what", "value"), list(facts.items())),
            charts=[
                chart.to_html(full_html=False, include_plotlyjs=False, config=options)
                for chart in charts
            ],
            plotly=get_plotlyjs(),
            kinds=kinds,
            long=Markup(' class="text long"'),
            long_cell=LONG_CELL,
        )
    )


def bench_charts(values: JsonView) -> list[Figure]:
    costs = values["costs"]["verify"]
    return [speedups(values["rows"]), pass_costs({"as measured at loading": costs})]


def speedups(rows: Sequence[Row]) -> Figure:
    """Return grouped bars: speedup over plain decoding by task, a colour per variant; whiskers are quartiles."""
    from plotly.graph_objects import Bar, Figure

    figure = Figure(layout=_layout("Speedup by task", "task", "times plain decoding"))
    for lane in dict.fromkeys(row["lane"] for row in rows):
        of_lane = [row for row in rows if row["lane"] == lane and row["speedup"] is not None]
        quartiles = [row["speedup_quartiles"] or [row["speedup"]] * 2 for row in of_lane]
        pairs = list(zip([row["speedup"] for row in of_lane], quartiles, strict=True))
        whiskers = {
            "type": "data",
            "symmetric": False,
            "array": [upper - speedup for speedup, (_, upper) in pairs],
            "arrayminus": [speedup - lower for speedup, (lower, _) in pairs],
            "visible": any(row["speedup_quartiles"] for row in of_lane),
        }
        tasks = [escape(row["task"]) for row in of_lane]
        heights = [speedup for speedup, _ in pairs]
        figure.add_trace(Bar(name=escape(lane), x=tasks, y=heights, error_y=whiskers))
    return figure


def pass_costs(
    lines: Mapping[str, Sequence[Sequence[float]]], title: str = "Cost of a pass by rows"
) -> Figure:
    """Return lines: milliseconds of a target pass by rows. lines: (rows, seconds) by name"""
    from plotly.graph_objects import Figure, Scatter

    figure = Figure(layout=_layout(title, "rows of the pass", "ms per pass"))
    for name, points in lines.items():
        rows, seconds = zip(*points, strict=True)
        times = [1000 * value for value in seconds]
        figure.add_trace(Scatter(name=escape(name), x=rows, y=times, mode="lines+markers"))
    firsts = [points[0][1] for points in lines.values()]
    if max(firsts) > LOG_FACTOR * min(firsts):
        figure.update_yaxes(type="log", title="ms per pass, logarithmic", dtick=1)
    else:
        figure.update_yaxes(rangemode="tozero")
    return figure


def _layout(title: str, x: str, y: str) -> Json:
    """Return the layout of a chart. Its colours are readable on light and dark pages."""
    layout: Json = STRINGS["chart"]
    axes = {
        f"{name}axis": layout["axis"] | {"title": {"text": at}} for name, at in (("x", x), ("y", y))
    }
    return {**layout["layout"], **axes, "title": {"text": title}}
