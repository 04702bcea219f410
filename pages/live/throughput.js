// Tokens a second over a chosen stretch, with what happened to engine and datasets as dashed lines with words.
import { element, utc, write } from "./dom.js"
import { place } from "./labels.js"
import { CONFIG, clock, colours, followUntilZoomed, layout, literally, loadPlotly, secondsOf } from "./plot.js"
import { Points } from "./points.js"
import { chooseStretch, currentStretch, startOver } from "./poll.js"

const STRETCHES = { "15m": ["15 min", "last 15 minutes"], "3h": ["3 h", "last 3 hours"], all: ["All", "since the start"] }
const SECONDS = { "15m": 900, "3h": 10800, all: null }
const SOURCES = {
  engine: "Completion tokens per second over all replicas",
  finished: "Completion tokens per second of finished samples; the server tells no rate of its own",
}
const TOP_PX = 48
const HEIGHT_PX = 264
const EVERY_MS = 2000
const MAX_WORDS = 44
const SIDES_PX = 58

export function throughputChart(files) {
  const title = element("h2", "hw-chart-title")
  const subtitle = element("p", "hw-dim hw-chart-subtitle")
  const whole = element("button", "hw-link", "Show all of it")
  whole.hidden = true
  const choices = element("div", "hw-choices")
  choices.setAttribute("role", "group")
  choices.setAttribute("aria-label", "Stretch of time")
  const plot = element("div", "hw-plot")
  const root = element("section", "hw-chart hw-wide", element("div", "hw-chart-head", element("div", "", title, subtitle), element("div", "hw-chart-tools", whole, choices)), plot)
  const points = new Points("tokens_per_s")
  const events = new Map()
  let Plotly = null
  let follow = null
  let now = 0
  let drawnAt = 0
  let c = null

  for (const [key, [word]] of Object.entries(STRETCHES)) {
    const button = element("button", "hw-choice", word)
    button.onclick = () => {
      points.clear()
      events.clear()
      if (follow) follow.on = true
      whole.hidden = true
      chooseStretch(key)
      name()
    }
    button.dataset.stretch = key
    choices.append(button)
  }

  function name() {
    write(title, `Throughput, ${STRETCHES[currentStretch()][1]}`)
    for (const button of choices.children) button.setAttribute("aria-pressed", String(button.dataset.stretch === currentStretch()))
  }

  function range() {
    const span = SECONDS[currentStretch()]
    const first = points.at[0] ?? now - 60 // a younger run fills the chart as well
    return [Math.min(span === null ? first : Math.max(first, now - span), now - 60), now]
  }

  function traces() {
    const line = points.line(clock)
    const [from] = range()
    const shown = [...events.values()].filter((event) => event.at >= from)
    return {
      x: [line.x, shown.map((event) => clock(event.at)), line.x],
      y: [line.y, shown.map(() => 0), line.y.map((value) => value ?? 0)], // a fill does not stop at gaps by itself
      customdata: [[], shown.map((event) => utc(event.at)), []],
      text: [[], shown.map((event) => literally(event.message)), []],
    }
  }

  function marks() {
    const [from, to] = follow && !follow.on ? zoomed() : range()
    const width = plot.clientWidth - SIDES_PX
    const within = [...events.values()].filter((event) => event.at >= from && event.at <= to)
    const placed = place(within.map((event) => ({ ...event, x: ((event.at - from) / (to - from)) * width, words: short(event.words) })), width)
    return {
      shapes: placed.map((mark) => ({
        type: "line", xref: "x", x0: clock(mark.at), x1: clock(mark.at), yref: "paper", y0: 0, y1: 1,
        line: { color: colourOf(mark), width: 1, dash: "dot" }, opacity: mark.lane === null ? 0.35 : 0.9, layer: "below",
      })),
      annotations: placed.filter((mark) => mark.lane !== null).map((mark) => ({
        x: clock(mark.at), xref: "x", y: 1, yref: "paper", yanchor: "bottom", yshift: mark.lane * 14 + 1,
        xanchor: mark.left ? "right" : "left", showarrow: false, text: literally(mark.words), font: { size: 11, color: colourOf(mark) },
      })),
    }
  }

  function zoomed() {
    return follow.range.map(secondsOf)
  }

  const colourOf = (mark) => (mark.tone === "dim" ? c.dim : c[mark.tone])

  async function draw() {
    if (!Plotly || points.at.length === 0) return
    drawnAt = Date.now()
    const change = marks()
    change["xaxis.range"] = follow.on ? range().map(clock) : follow.range
    follow.ours = true
    try {
      await Plotly.update(plot, traces(), change)
    } finally {
      follow.ours = false
    }
  }

  async function begin() {
    Plotly = await loadPlotly(files)
    c = colours(root)
    const shape = layout(c, { top: TOP_PX, height: HEIGHT_PX })
    await Plotly.newPlot(
      plot,
      [
        { x: [], y: [], type: "scatter", mode: "lines", line: { color: c.accent, width: 1.6 }, hovertemplate: "%{y:,.0f} tok/s<extra></extra>" },
        { x: [], y: [], type: "scatter", mode: "markers", marker: { symbol: "triangle-up", size: 7, color: c.dim }, cliponaxis: false, hovertemplate: "%{text}<br>%{customdata}<extra></extra>" },
        { x: [], y: [], type: "scatter", mode: "lines", fill: "tozeroy", fillcolor: c.fill, line: { width: 0 }, hoverinfo: "skip" },
      ],
      shape,
      CONFIG,
    )
    follow = followUntilZoomed(plot, whole, draw)
    await draw()
  }

  name()
  begin().catch(() => write(subtitle, "The chart could not be loaded; load the page again."))
  return {
    root,
    hear(answer) {
      now = answer.at
      root.classList.toggle("hw-empty", !answer.charts)
      if (!answer.charts) {
        write(subtitle, "Nothing has been measured yet: the line begins with the engine.")
        return
      }
      write(subtitle, SOURCES[answer.charts.source])
      if (answer.whole) events.clear()
      if (!points.take(answer.charts.throughput, answer.whole)) startOver()
      for (const event of answer.events) events.set(event.id, event)
      const [from] = range()
      if (currentStretch() !== "all") points.dropBefore(from)
      if (answer.whole || Date.now() - drawnAt >= Math.max(EVERY_MS, points.step * 250)) draw()
    },
    retheme() {
      if (!Plotly) return
      c = colours(root)
      const shape = layout(c, { top: TOP_PX, height: HEIGHT_PX })
      Plotly.restyle(plot, { "line.color": c.accent }, [0])
      Plotly.restyle(plot, { fillcolor: c.fill }, [2])
      Plotly.relayout(plot, { font: shape.font, hoverlabel: shape.hoverlabel, "xaxis.tickfont": shape.xaxis.tickfont, "yaxis.tickfont": shape.yaxis.tickfont, "yaxis.gridcolor": c.grid, "xaxis.linecolor": c.line, "yaxis.linecolor": c.line })
      draw()
    },
    close: () => Plotly?.purge(plot),
  }
}

function short(words) {
  return words.length <= MAX_WORDS ? words : `${words.slice(0, MAX_WORDS - 1).trimEnd()}…`
}
