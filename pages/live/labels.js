// Where the words of events stand above a chart, so that none lies on another and no line runs through one.
const CHARACTER_PX = 6
const GAP_PX = 10
const LANES = 3

// marks: [{ x (px), words, ... }] in order of time -> the same with `lane` (0 is next to the plot; null: no room, the line
// alone) and `left` (the words stand to the left of the line). Later ones come first: words of earlier ones go above them.
export function place(marks, width) {
  const placed = []
  for (const mark of [...marks].reverse()) placed.push({ ...mark, ...spot(mark, placed, width) })
  return placed.reverse()
}

function spot(mark, others, width) {
  const long = mark.words.length * CHARACTER_PX + GAP_PX
  for (const left of [false, true]) {
    for (let lane = 0; lane < LANES; lane += 1) {
      const from = left ? mark.x - long : mark.x
      const to = from + long
      if (from >= 0 && to <= width && others.every((other) => isApart(mark.x, from, to, lane, other))) {
        return { lane, left, from, to }
      }
    }
  }
  return { lane: null, left: false, from: mark.x, to: mark.x }
}

function isApart(x, from, to, lane, other) {
  if (other.lane === null) return true
  if (other.lane === lane && from < other.to && other.from < to) return false // words on words
  if (other.lane <= lane && other.from < x && x < other.to) return false // my line through its words
  return !(other.lane >= lane && from < other.x && other.x < to) // its line through mine
}
