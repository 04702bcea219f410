// plotly.js, loaded once, and what both charts share: colours from the stylesheet, local time, zoom that stays.
let loading = null

export function loadPlotly(files) {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script")
    script.src = new URL(`${files}plotly.min.js`, document.baseURI).href
    script.onload = () => resolve(window.Plotly)
    script.onerror = () => {
      loading = null
      reject(new Error("plotly.js could not be loaded"))
    }
    document.head.append(script)
  })
  return loading
}

// Moments go to Plotly as texts of the viewer's clock, and come back so. (Numbers would do until values are replaced: then it
// forgets that an axis holds dates, and telling it again lets go of the zoom.)
export function clock(at) {
  return new Date((at - new Date(at * 1000).getTimezoneOffset() * 60) * 1000).toISOString().slice(0, -1)
}

export function secondsOf(edge) {
  if (typeof edge === "number") return edge / 1000
  return new Date(edge.length > 10 ? edge.replace(" ", "T") : `${edge}T00:00`).getTime() / 1000
}

// Plotly reads tags and entities in texts.
export function literally(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")
}

export function colours(root) {
  const probe = document.createElement("span")
  root.append(probe)
  const found = {}
  for (const name of ["accent", "fill", "grid", "dim", "ink", "panel", "done", "paused", "failed", "line"]) {
    probe.style.color = `var(--hw-${name})`
    found[name] = getComputedStyle(probe).color
  }
  probe.remove()
  return found
}

const MINUTE_MS = 60000
const HOUR_MS = 60 * MINUTE_MS
const TICKS = [
  { dtickrange: [null, MINUTE_MS - 1], value: "%H:%M:%S" },
  { dtickrange: [MINUTE_MS, 3 * HOUR_MS - 1], value: "%H:%M" },
  { dtickrange: [3 * HOUR_MS, 24 * HOUR_MS - 1], value: "%a %H:%M" },
  { dtickrange: [24 * HOUR_MS, null], value: "%-d %b" },
]

export function layout(c, { top, height }) {
  const axis = {
    gridcolor: c.grid,
    linecolor: c.line,
    zeroline: false,
    tickfont: { color: c.dim, size: 11 },
    automargin: false,
  }
  return {
    height,
    margin: { l: 44, r: 14, t: top, b: 26 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif", color: c.dim, size: 11 },
    showlegend: false,
    hovermode: "x",
    hoverlabel: { bgcolor: c.panel, bordercolor: c.line, font: { color: c.ink, size: 12 } },
    dragmode: window.matchMedia("(pointer: coarse)").matches ? false : "zoom",
    xaxis: { ...axis, type: "date", showgrid: false, nticks: 7, tickangle: 0, tickformatstops: TICKS, hoverformat: "%d %b %H:%M:%S" },
    yaxis: { ...axis, rangemode: "tozero", fixedrange: true, tickformat: "~s", nticks: 6 },
  }
}

export const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false, scrollZoom: false }

// Follows the present until somebody zooms, and again when they let go (double click, or the button that appears).
export function followUntilZoomed(plot, button, redraw) {
  const follow = { on: true, ours: false, range: null }
  const release = () => {
    follow.on = true
    button.hidden = true
    redraw()
  }
  plot.on("plotly_relayout", (change) => {
    if (follow.ours || !("xaxis.range[0]" in change)) return
    follow.on = false
    follow.range = [change["xaxis.range[0]"], change["xaxis.range[1]"]]
    button.hidden = false
    redraw()
  })
  plot.on("plotly_doubleclick", release)
  button.onclick = release
  return follow
}
