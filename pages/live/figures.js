// The six figures and the two charts of Overview.
import { drawTrend, element, trendLine, write } from "./dom.js"
import { finishedChart } from "./finished.js"
import { follow } from "./poll.js"
import { throughputChart } from "./throughput.js"

export function mount(root, data) {
  const grid = element("div", "hw-panel hw-figures")
  const throughput = throughputChart(data.files)
  const finished = finishedChart(data.files)
  const cells = new Map()
  root.replaceChildren(grid, element("div", "hw-charts", throughput.root, finished.root))

  function cellOf(figure) {
    if (!cells.has(figure.key)) {
      const cell = { value: element("span", "hw-value"), of: element("span", "hw-of"), note: element("p", "hw-note"), trend: trendLine() }
      const label = element("h3", "hw-label", figure.label)
      const box = element("div", "hw-figure", label, element("p", "hw-figure-line", cell.value, " ", cell.of), cell.note, cell.trend)
      box.dataset.key = figure.key
      grid.append(box)
      cells.set(figure.key, cell)
    }
    return cells.get(figure.key)
  }

  const hear = (answer) => {
    root.classList.toggle("hw-stale", !answer.look)
    if (!answer.look) return
    for (const figure of answer.figures) {
      const cell = cellOf(figure)
      write(cell.value, figure.value)
      write(cell.of, figure.of)
      write(cell.note, figure.note)
      drawTrend(cell.trend, figure.trend, { from: 0 })
    }
    throughput.hear(answer)
    finished.hear(answer)
  }
  const following = follow(data.run, true, hear)
  return {
    update(next) {
      requestAnimationFrame(() => [throughput, finished].forEach((chart) => chart.retheme()))
      following.turnTo(next.run)
    },
    unmount() {
      following.stop()
      throughput.close()
      finished.close()
    },
  }
}
