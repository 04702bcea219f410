// Small pieces of DOM. Text goes in as text only: what a model, a file name or an error says is never read as HTML.
const SVG = "http://www.w3.org/2000/svg"

export function element(tag, className = "", ...children) {
  const made = document.createElement(tag)
  if (className) made.className = className
  made.append(...children)
  return made
}

// Writes only what changed: a browser that has nothing to lay out does nothing.
export function write(node, text) {
  const words = text ?? ""
  if (node.textContent !== words) node.textContent = words
}

export function time(at, seconds = true) {
  const shape = { hour: "2-digit", minute: "2-digit", hour12: false, ...(seconds && { second: "2-digit" }) }
  return new Date(at * 1000).toLocaleTimeString([], shape)
}

export function utc(at) {
  return `${new Date(at * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`
}

export function state(look) {
  const sign = element("span", "hw-sign", look.sign)
  sign.setAttribute("aria-hidden", "true")
  return element("span", `hw-state hw-${look.tone}`, sign, look.word)
}

// A line without axes. A gap in the values is a gap in the line.
export function trendLine() {
  const svg = document.createElementNS(SVG, "svg")
  svg.setAttribute("class", "hw-trend")
  svg.setAttribute("viewBox", "0 0 100 24")
  svg.setAttribute("preserveAspectRatio", "none")
  svg.setAttribute("aria-hidden", "true")
  const path = document.createElementNS(SVG, "path")
  path.setAttribute("vector-effect", "non-scaling-stroke")
  svg.append(path)
  return svg
}

export function drawTrend(svg, values, { from = null, to = null } = {}) {
  const known = values.filter((v) => v !== null)
  const drawn = known.length > 1 ? pathOf(values, from ?? Math.min(...known), to ?? Math.max(...known)) : ""
  const path = svg.firstChild
  if (path.getAttribute("d") !== drawn) path.setAttribute("d", drawn)
}

function pathOf(values, low, high) {
  const spread = high - low || Math.abs(high) || 1
  const base = high === low ? low - spread / 2 : low
  let pen = "M"
  let path = ""
  values.forEach((value, i) => {
    if (value === null) {
      pen = "M"
      return
    }
    const x = (i / (values.length - 1)) * 100
    path += `${pen}${x.toFixed(1)} ${(22.5 - ((value - base) / spread) * 21).toFixed(1)}`
    pen = "L"
  })
  return path
}
