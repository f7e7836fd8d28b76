// Live charts on persistent elements: lookahead per step, speedup over time with what was foreseen, acceptance run by run.

import { el, fill, svg } from "./dom.js";
import { speedupCurve, two } from "./metrics.js";
import { acceptanceHistory, oracle, overlapBound, predictedCurve } from "./series.js";
import { depthOf, isTree } from "./tree.js";

const CONFIG = { displayModeBar: false, responsive: true };

export class ChartsView {
  #words;
  #methods; // titles
  #state = null;
  #highlight = -1;

  constructor(words) {
    this.#words = words.charts;
    this.#methods = words.methods;
    this.lookahead = new Panel(this.#words, "lookahead");
    this.speedup = new Panel(this.#words, "speedup");
    this.history = new Panel(this.#words, "history");
    this.history.root.hidden = true;
    this.history.root.classList.add("sd-chart-wide");
    this.root = el("div", { class: "sd-charts" }, this.lookahead.root, this.speedup.root, this.history.root);
  }

  /** Draw a state; does nothing until Plotly has been loaded. */
  render(state) {
    this.#state = state;
    if (!globalThis.Plotly || !this.root.isConnected) return;
    const colours = palette(this.root);
    this.#drawLookahead(state.lanes.speculative, colours);
    this.#drawSpeedup(state, colours);
    this.#drawHistory(state.lanes.speculative, colours);
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
    const deep = steps.map((step) => depthOf(step.nodes));
    const best = steps.map(oracle);
    const hover = steps.map((step, i) => this.#hover(step, deep[i], best[i]));
    const bar = (name, y, marker) => ({ type: "bar", name, x, y, marker, hoverinfo: "skip" });
    const known = steps.flatMap((step, i) => (best[i] ? [i] : []));
    const traces = [
      bar(words.accepted, steps.map((step) => step.path.length), { color: colours.accepted }),
      bar(words.not_accepted, steps.map((step, i) => deep[i] - step.path.length), {
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
      {
        type: "scatter",
        mode: "markers",
        name: words.oracle,
        x: known.map((i) => x[i]),
        y: known.map((i) => best[i].depth),
        marker: {
          symbol: known.map((i) => (best[i].exact ? "diamond" : "triangle-up")),
          size: known.map((i) => (best[i].exact ? 7 : 9)),
          color: colours.card,
          line: { color: colours.ink, width: 1.25 },
        },
        cliponaxis: false,
        hoverinfo: "skip",
      },
    ];
    const top = steps.reduce((most, step, i) => Math.max(most, step.lookahead, deep[i]), 4);
    const layout = base(colours, words.step, words.tokens);
    layout.barmode = "stack";
    layout.bargap = 0.25;
    layout.hovermode = "x";
    layout.xaxis.range = [0.4, Math.max(24, steps.length + 1)];
    layout.yaxis.range = [0, top + 0.6];
    layout.yaxis.dtick = top > 8 ? 4 : 2;
    if (this.#highlight >= 0) layout.shapes = [band(this.#highlight + 1, colours)];
    this.lookahead.key("accepted", "not_accepted", "allowed", "oracle");
    globalThis.Plotly.react(this.lookahead.plot, traces, layout, CONFIG);
  }

  #hover(step, depth, best) {
    const words = this.#words;
    const lines = [
      fill(isTree(step.nodes) ? words.tree_hover : words.lookahead_hover, {
        step: step.index + 1,
        lookahead: step.lookahead,
        drafted: step.nodes.length,
        accepted: step.path.length,
        depth,
      }),
      escapeMarkup(step.reason || words.no_reason),
    ];
    if (step.source) lines.push(fill(words.source_hover, { source: escapeMarkup(this.#methods[step.source] ?? step.source) }));
    if (best) lines.push(fill(best.exact ? words.oracle_exact : words.oracle_least, { depth: best.depth }));
    return lines.join("<br>");
  }

  #drawSpeedup(state, colours) {
    const { plain, speculative } = state.lanes;
    const points = speedupCurve(plain, speculative);
    const words = this.#words;
    const seconds = points.map((point) => point.seconds);
    const predicted = predictedCurve(plain, speculative);
    const bound = overlapBound(plain, speculative);
    const last = Math.max(...[points, predicted, bound].map((curve) => curve.at(-1)?.seconds ?? 0));
    const end = Math.max(0.5, last, 0.4 * (plain?.elapsed ?? 0));
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
    if (predicted.length) traces.push(modelled(words.predicted, words.predicted_hover, predicted, colours.correction, "dot"));
    if (bound.length) traces.push(modelled(words.bound, words.bound_hover, bound, colours.bonus, "dashdot"));
    // The first steps jump about: they may leave the frame, the rest may not.
    const settled = [points, predicted, bound].flatMap((curve) =>
      curve.slice(Math.min(3, curve.length - 1)).map((point) => point.speedup));
    const layout = base(colours, words.seconds, words.times);
    layout.xaxis.range = [0, end * 1.02];
    layout.yaxis.range = [0, Math.max(2, ...settled) * 1.12];
    layout.yaxis.dtick = [0.5, 1, 2, 5, 10].find((tick) => layout.yaxis.range[1] <= 5 * tick) ?? 20;
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
        text: state.lane === "plain" && !plain?.end ? words.wait_plain : words.no_plain,
        font: { size: 12, color: colours.soft },
      });
    }
    this.speedup.key("speedup", ...(predicted.length ? ["predicted"] : []), ...(bound.length ? ["bound"] : []));
    globalThis.Plotly.react(this.speedup.plot, traces, layout, CONFIG);
  }

  // Only where a method has learned from earlier runs; in words too, for those who do not see it.
  #drawHistory(lane, colours) {
    const points = acceptanceHistory(lane);
    this.history.root.hidden = !points.length;
    if (!points.length) return;
    const words = this.#words;
    const shares = points.map((point) => 100 * point.share);
    const label = fill(words.history_label, { shares: shares.map((share) => `${Math.round(share)} %`).join(", ") });
    this.history.plot.setAttribute("aria-label", label);
    const trace = {
      type: "scatter",
      mode: "lines+markers",
      name: words.history,
      x: points.map((point) => point.run),
      y: shares,
      line: { color: colours.accepted, width: 2 },
      marker: { size: points.map((point) => (point.current ? 10 : 6)), color: colours.accepted },
      cliponaxis: false,
      text: points.map((point) => fill(point.current ? words.history_now : words.history_hover, {
        run: point.run, share: Math.round(100 * point.share),
      })),
      hovertemplate: "%{text}<extra></extra>",
    };
    const layout = base(colours, words.run, words.share);
    layout.xaxis.range = [0.5, Math.max(6, points.length) + 0.5];
    layout.xaxis.dtick = points.length > 12 ? 5 : 1;
    layout.yaxis.range = [0, 100];
    layout.yaxis.dtick = 25;
    this.history.key("history");
    globalThis.Plotly.react(this.history.plot, [trace], layout, CONFIG);
  }
}

// A line of what was computed, not measured; its name says so.
const modelled = (name, hover, curve, color, dash) => ({
  type: "scatter",
  mode: "lines",
  name,
  x: curve.map((point) => point.seconds),
  y: curve.map((point) => point.speedup),
  line: { color, width: 2, dash },
  text: curve.map((point) => fill(hover, { speedup: two(point.speedup) })),
  hovertemplate: "%{text}<extra></extra>",
});

// A title, a legend and a plot. The legend is the page's own: Plotly's takes the room of the plot when it wraps.
class Panel {
  #words;
  #names = "";

  constructor(words, name) {
    this.#words = words;
    const heading = el("h3");
    heading.textContent = words[`${name}_title`];
    this.legend = el("ul", { class: "sd-chart-key" });
    this.plot = el("div", { class: "sd-plot", role: "img", "aria-label": words[`${name}_label`] });
    this.root = el("section", { class: "sd-chart" }, el("header", {}, heading, this.legend), this.plot);
  }

  /** Which lines and bars the legend names. */
  key(...names) {
    if (this.#names === names.join()) return;
    this.#names = names.join();
    this.legend.replaceChildren(...names.map((name) => {
      const drawing = svg("svg", { width: 20, height: 10, class: `sd-key-of sd-key-of-${name}` });
      for (const [shape, attributes] of SAMPLES[name] ?? LINE) drawing.append(svg(shape, attributes));
      return el("li", {}, drawing, this.#words[name]);
    }));
  }
}

const LINE = [["line", { x1: 0, x2: 20, y1: 5, y2: 5 }]];
const BAR = ["rect", { x: 5.5, y: 0.5, width: 9, height: 9 }];
const SAMPLES = {
  accepted: [BAR],
  not_accepted: [BAR, ["path", { d: "M6 5 L10 1 M6 9 L14 1 M10 9 L14 5" }]],
  oracle: [["path", { d: "M4.5 1 L8.5 5 L4.5 9 L0.5 5 Z M15 1 L19 9 L11 9 Z" }]],
};

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
    margin: { l: 38, r: 10, t: 8, b: 30 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: colours.font, size: 11, color: colours.soft },
    hoverlabel: { bgcolor: colours.card, bordercolor: colours.line, font: { color: colours.ink, size: 12 }, align: "left" },
    xaxis: { ...axis(x), showgrid: false },
    yaxis: axis(y),
    showlegend: false,
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
