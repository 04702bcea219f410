// A chart's points as a browser keeps them: what comes again replaces what was there, what is older than the stretch goes.
export class Points {
  constructor(name) {
    this.name = name
    this.clear()
  }

  clear() {
    this.step = null
    this.at = []
    this.y = []
  }

  // Returns false where the points have another width than before: then everything must be asked anew.
  take(series, whole) {
    if (whole) this.clear()
    else if (this.step !== null && series.step_s !== this.step) return false
    this.step = series.step_s
    const values = series.values[this.name]
    let kept = this.at.length
    while (kept > 0 && series.at.length > 0 && this.at[kept - 1] >= series.at[0]) kept -= 1
    this.at.length = kept
    this.y.length = kept
    series.at.forEach((at, i) => {
      this.at.push(at)
      this.y.push(values[i])
    })
    return true
  }

  dropBefore(at) {
    let gone = 0
    while (gone < this.at.length && this.at[gone] + this.step < at) gone += 1
    if (gone > 0) {
      this.at.splice(0, gone)
      this.y.splice(0, gone)
    }
  }

  // For Plotly: a stretch without points is a gap in the line.
  line(clock) {
    const x = []
    const y = []
    this.at.forEach((at, i) => {
      if (i > 0 && at - this.at[i - 1] > Math.max(3 * this.step, 8)) {
        x.push(clock(this.at[i - 1] + this.step), clock(at))
        y.push(null, null)
      }
      x.push(clock(at))
      y.push(this.y[i])
    })
    return { x, y }
  }
}
