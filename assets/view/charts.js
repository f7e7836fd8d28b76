// Two live charts on persistent elements: lookahead per step, and speedup over time.

import { el, fill } from "./dom.js";
import { speedupCurve, two } from "./metrics.js";

const CONFIG = { displayModeBar: false, responsive: true };

export class ChartsView {
  #words;
  #state = null;
  #highlight = -1;

  constructor(words) {
    this.#words = words.charts;
    this.lookahead = panel(this.#words.lookahead_title, this.#words.lookahead_label);
    this.speedup = panel(this.#words.speedup_title, this.#words.speedup_label);
    this.root = el("div", { class: "sd-charts" }, this.lookahead.root, this.speedup.root);
  }

  /** Draw a state; does nothing until Plotly has been loaded. */
  render(state) {
    this.#state = state;
    if (!globalThis.Plotly || !this.root.isConnected) return;
    const colours = palette(this.root);
    this.#drawLookahead(state.lanes.speculative, colours);
    this.#drawSpeedup(state, colours);
  }

  redraw() {
    if (this.#state) this.render(this.#state);
  }

  highlight(index) {
    if (index === this.#highlight) return;
    this.#highlight = index;
    this.redraw();
  }

  #drawLookahead(lane, colours) {
    const steps = (lane?.steps ?? []).filter((step) => !step.open);
    const x = steps.map((step) => step.index + 1);
    const words = this.#words;
    const hover = steps.map((step) =>
      fill(words.lookahead_hover, {
        step: step.index + 1,
        lookahead: step.lookahead,
        drafted: step.nodes.length,
        accepted: step.path.length,
        reason: escapeMarkup(step.reason || words.no_reason),
      }));
    const bar = (name, y, marker) => ({ type: "bar", name, x, y, marker, hoverinfo: "skip" });
    const traces = [
      bar(words.accepted, steps.map((step) => step.path.length), { color: colours.accepted }),
      bar(words.not_accepted, steps.map((step) => step.nodes.length - step.path.length), {
        color: "rgba(0,0,0,0)",
        line: { color: colours.rejected, width: 1 },
        pattern: { shape: "/", fgcolor: colours.rejected, size: 5, solidity: 0.4 },
      }),
      {
        type: "scatter",
        mode: "lines",
        name: words.allowed,
        x,
        y: steps.map((step) => step.lookahead),
        line: { color: colours.ink, width: 1.5, shape: "hvh" },
        text: hover,
        hovertemplate: "%{text}<extra></extra>",
      },
    ];
    const top = steps.reduce((most, step) => Math.max(most, step.lookahead, step.nodes.length), 4);
    const layout = base(colours, words.step, words.tokens);
    layout.barmode = "stack";
    layout.bargap = 0.25;
    layout.hovermode = "x";
    layout.xaxis.range = [0.4, Math.max(24, steps.length + 1)];
    layout.yaxis.range = [0, top + 0.6];
    layout.yaxis.dtick = top > 8 ? 4 : 2;
    if (this.#highlight >= 0) layout.shapes = [band(this.#highlight + 1, colours)];
    globalThis.Plotly.react(this.lookahead.plot, traces, layout, CONFIG);
  }

  #drawSpeedup(state, colours) {
    const { plain, speculative } = state.lanes;
    const points = speedupCurve(plain, speculative);
    const words = this.#words;
    const seconds = points.map((point) => point.seconds);
    const end = Math.max(0.5, seconds.at(-1) ?? 0, 0.4 * (plain?.elapsed ?? 0));
    const traces = [
      {
        type: "scatter",
        mode: points.length > 1 ? "lines" : "lines+markers",
        name: words.speedup,
        x: seconds,
        y: points.map((point) => point.speedup),
        line: { color: colours.accepted, width: 2.5 },
        text: points.map((point) =>
          fill(words.speedup_hover, { tokens: point.tokens, seconds: two(point.seconds), speedup: two(point.speedup) })),
        hovertemplate: "%{text}<extra></extra>",
      },
    ];
    // The first steps jump about: they may leave the frame, the rest may not.
    const settled = points.slice(Math.min(3, points.length - 1)).map((point) => point.speedup);
    const layout = base(colours, words.seconds, words.times);
    layout.xaxis.range = [0, end * 1.02];
    layout.yaxis.range = [0, Math.max(2, ...settled) * 1.12];
    layout.yaxis.dtick = layout.yaxis.range[1] > 4 ? 2 : layout.yaxis.range[1] > 2.5 ? 1 : 0.5;
    layout.shapes = [{
      type: "line", xref: "paper", x0: 0, x1: 1, y0: 1, y1: 1,
      line: { color: colours.ink, width: 1, dash: "dash" },
    }];
    layout.annotations = [{
      xref: "paper", x: 1, y: 1, xanchor: "right", yanchor: "top", showarrow: false,
      text: words.plain_line, font: { size: 11, color: colours.soft },
    }];
    const at = this.#highlight >= 0 ? points.find((point) => point.step === this.#highlight) : null;
    if (at) {
      layout.shapes.push({
        type: "line", yref: "paper", x0: at.seconds, x1: at.seconds, y0: 0, y1: 1,
        line: { color: colours.bonus, width: 1.5 },
      });
    }
    if (!points.length) {
      layout.annotations.push({
        xref: "paper", yref: "paper", x: 0.5, y: 0.62, showarrow: false,
        text: state.lane === "plain" && !plain.end ? words.wait_plain : words.no_plain,
        font: { size: 12, color: colours.soft },
      });
    }
    globalThis.Plotly.react(this.speedup.plot, traces, layout, CONFIG);
  }
}

function panel(title, label) {
  const heading = el("h3");
  heading.textContent = title;
  const plot = el("div", { class: "sd-plot", role: "img", "aria-label": label });
  return { root: el("section", { class: "sd-chart" }, heading, plot), plot };
}

const band = (x, colours) => ({
  type: "rect", yref: "paper", x0: x - 0.5, x1: x + 0.5, y0: 0, y1: 1,
  fillcolor: colours.bonus, opacity: 0.25, line: { width: 0 },
});

function base(colours, x, y) {
  const axis = (title) => ({
    title: { text: title, font: { size: 11 }, standoff: 4 },
    gridcolor: colours.grid, zeroline: false, linecolor: colours.line, fixedrange: true, tickfont: { size: 10 },
  });
  return {
    autosize: true,
    margin: { l: 38, r: 10, t: 26, b: 32 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: colours.font, size: 11, color: colours.soft },
    hoverlabel: { bgcolor: colours.card, bordercolor: colours.line, font: { color: colours.ink, size: 12 }, align: "left" },
    xaxis: { ...axis(x), showgrid: false },
    yaxis: axis(y),
    showlegend: true,
    legend: { orientation: "h", x: 1, xanchor: "right", y: 1.02, yanchor: "bottom", font: { size: 11 } },
    uirevision: "live",
  };
}

function palette(element) {
  const style = getComputedStyle(element);
  const read = (name) => style.getPropertyValue(`--sd-${name}`).trim();
  const font = style.fontFamily;
  const names = ["ink", "soft", "line", "grid", "card", "accepted", "rejected", "correction", "bonus"];
  return { font, ...Object.fromEntries(names.map((name) => [name, read(name)])) };
}

// Plotly reads a small markup in its labels: text from a trace must not be taken for it.
const escapeMarkup = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("%{", "% {");
