// The GPUs at a glance: how busy, how hot, how much power and memory. What a device does not tell is "–".
import { drawTrend, element, trendLine, write } from "./dom.js"
import { follow } from "./poll.js"

const LEAST_PX = 168

export function mount(root, data) {
  const strip = element("div", "hw-panel hw-gpus")
  const cells = new Map()
  strip.hidden = true
  root.replaceChildren(strip)

  // As even rows as the width allows: eight GPUs are one row of eight or two of four.
  function arrange() {
    const fit = Math.max(1, Math.floor(root.clientWidth / LEAST_PX))
    const rows = Math.ceil(cells.size / fit)
    strip.style.gridTemplateColumns = `repeat(${Math.max(1, Math.ceil(cells.size / rows))}, minmax(0, 1fr))`
  }
  const watcher = new ResizeObserver(arrange)
  watcher.observe(root)

  function cellOf(gpu) {
    if (!cells.has(gpu.key)) {
      const cell = { temperature: element("span"), left: element("span"), right: element("span"), trend: trendLine() }
      const head = element("div", "hw-gpu-line", element("h3", "hw-label", gpu.label), cell.temperature)
      strip.append(element("div", "hw-gpu", head, cell.trend, element("div", "hw-gpu-line", cell.left, cell.right)))
      cells.set(gpu.key, cell)
      arrange()
    }
    return cells.get(gpu.key)
  }

  const hear = (answer) => {
    root.classList.toggle("hw-stale", !answer.look)
    if (!answer.look) return
    strip.hidden = answer.gpus.length === 0
    for (const gpu of answer.gpus) {
      const cell = cellOf(gpu)
      write(cell.temperature, gpu.temperature)
      write(cell.left, `${gpu.utilization} · ${gpu.power}`)
      write(cell.right, gpu.memory)
      drawTrend(cell.trend, gpu.trend, { from: 0, to: 100 })
    }
  }
  const following = follow(data.run, true, hear)
  return {
    update(next) {
      if (!following.turnTo(next.run)) return
      cells.clear()
      strip.replaceChildren()
    },
    unmount() {
      following.stop()
      watcher.disconnect()
    },
  }
}
