// Finished tokens since the start, and the line they are to reach.
import { element, write } from "./dom.js"
import { CONFIG, clock, colours, layout, loadPlotly } from "./plot.js"
import { Points } from "./points.js"
import { startOver } from "./poll.js"

const EVERY_MS = 10000

export function finishedChart(files) {
  const subtitle = element("p", "hw-dim hw-chart-subtitle", "Completion tokens of all datasets, since the start")
  const plot = element("div", "hw-plot")
  const root = element("section", "hw-chart hw-narrow", element("div", "hw-chart-head", element("div", "", element("h2", "hw-chart-title", "Finished tokens"), subtitle)), plot)
  const points = new Points("tokens")
  let Plotly = null
  let target = null
  let drawnAt = 0
  let c = null

  function goal() {
    if (target === null) return { shapes: [], annotations: [], "yaxis.range": null, "yaxis.autorange": true }
    return {
      shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: target, y1: target, line: { color: c.dim, width: 1, dash: "dot" } }],
      annotations: [{ xref: "paper", x: 0, xanchor: "left", y: target, yanchor: "bottom", showarrow: false, text: "all budgets", font: { size: 11, color: c.dim } }],
      "yaxis.range": [0, Math.max(target, points.y.at(-1) ?? 0) * 1.06],
    }
  }

  async function draw() {
    if (!Plotly || points.at.length === 0) return
    drawnAt = Date.now()
    const line = points.line(clock)
    const ends = points.at.length - 1
    await Plotly.update(plot, { x: [line.x, [clock(points.at[ends])]], y: [line.y, [points.y[ends]]] }, goal())
  }

  async function begin() {
    Plotly = await loadPlotly(files)
    c = colours(root)
    const shape = layout(c, { top: 48, height: 264 })
    shape.xaxis.nticks = 4
    await Plotly.newPlot(
      plot,
      [
        { x: [], y: [], type: "scatter", mode: "lines", line: { color: c.accent, width: 1.8 }, hovertemplate: "%{y:,.0f} tokens<extra></extra>" },
        { x: [], y: [], type: "scatter", mode: "markers", marker: { color: c.accent, size: 6 }, hoverinfo: "skip" },
      ],
      shape,
      CONFIG,
    )
    await draw()
  }

  begin().catch(() => write(subtitle, "The chart could not be loaded; load the page again."))
  return {
    root,
    hear(answer) {
      root.classList.toggle("hw-empty", !answer.charts)
      if (!answer.charts) return
      target = answer.target_tokens
      if (!points.take(answer.charts.finished, answer.whole)) startOver()
      if (answer.whole || Date.now() - drawnAt >= EVERY_MS) draw()
    },
    retheme() {
      if (!Plotly) return
      c = colours(root)
      const shape = layout(c, { top: 48, height: 264 })
      Plotly.restyle(plot, { "line.color": c.accent, "marker.color": c.accent })
      Plotly.relayout(plot, { font: shape.font, hoverlabel: shape.hoverlabel, "xaxis.tickfont": shape.xaxis.tickfont, "yaxis.tickfont": shape.yaxis.tickfont, "yaxis.gridcolor": c.grid, "xaxis.linecolor": c.line, "yaxis.linecolor": c.line })
      draw()
    },
    close: () => Plotly?.purge(plot),
  }
}
