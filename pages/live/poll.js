// One question a second for all parts of a page, however many there are: `api/live` where a part wants charts or figures,
// else the small `api/pulse`. Parts get each answer; what they draw is their affair.
const EVERY_MS = 1000
const HIDDEN_EVERY_MS = 5000
const PATIENCE_MS = 10000

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "UTC" // the words of times are made where they are read

const parts = new Map() // function of a part -> { run, full }
let stretch = sessionStorage.getItem("hw-stretch") ?? "15m"
let since = 0
let era = 0 // counts what makes a question under way useless
let timer = null
let failedAt = null

// `hear` gets the answers about `run` from now on, `full` ones (`api/live`) or short ones, until `stop()`. `turnTo(run)`: those
// about another run; it tells whether that one is another.
export function follow(run, full, hear) {
  const turn = (next) => {
    run = next
    parts.set(hear, { run, full })
    startOver() // whoever comes later needs the whole as well
  }
  turn(run)
  return {
    turnTo(next) {
      if (next === run) return false
      parts.delete(hear) // the newest comes last
      turn(next)
      return true
    },
    stop: () => parts.delete(hear),
  }
}

export function currentStretch() {
  return stretch
}

export function chooseStretch(chosen) {
  stretch = chosen
  sessionStorage.setItem("hw-stretch", chosen)
  startOver()
}

// The next answer holds everything, not only what came since.
export function startOver() {
  since = 0
  era += 1
  wake(0)
}

function wake(delay) {
  clearTimeout(timer)
  timer = setTimeout(ask, delay)
}

async function ask() {
  if (parts.size === 0) return
  const asked = era
  const listeners = [...parts.entries()]
  const { run } = listeners[listeners.length - 1][1]
  const full = listeners.some(([, part]) => part.full)
  let answer
  try {
    answer = await fetchAnswer(run, full)
    failedAt = null
  } catch (error) {
    failedAt ??= Date.now()
    answer = { run, failedAt, error: error.name === "Refusal" ? error.message : null }
  }
  if (asked !== era) return
  answer.whole = since === 0
  if (full && !answer.failedAt) since = answer.seq
  wake(document.hidden ? HIDDEN_EVERY_MS : EVERY_MS)
  tell(answer, listeners)
}

async function fetchAnswer(run, full) {
  const url = new URL(full ? "api/live" : "api/pulse", document.baseURI)
  url.search = new URLSearchParams(full ? { run, since, window: stretch, zone } : { run })
  const response = await fetch(url, { signal: AbortSignal.timeout(PATIENCE_MS), cache: "no-store" })
  const answer = await response.json()
  if (!response.ok) throw Object.assign(new Error(answer.error), { name: "Refusal" })
  return answer
}

function tell(answer, listeners) {
  for (const [hear] of listeners) {
    try {
      if (parts.has(hear)) hear(answer)
    } catch (error) {
      console.error("a part of the live view failed", error)
    }
  }
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) wake(0)
})
