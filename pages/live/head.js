// Overview's first line: what runs, how far it is, when it is done; beneath it how fresh that is, and the naive guess.
import { element, time, utc, write } from "./dom.js"
import { follow } from "./poll.js"

export function mount(root, data) {
  const sentence = element("span")
  const end = element("span", "hw-accent-text")
  const behind = element("span")
  const asOf = element("span")
  const detail = element("span")
  root.replaceChildren(
    element("h1", "hw-headline", sentence, " ", end, behind),
    element("p", "hw-dim hw-detail", asOf, detail),
  )
  write(sentence, data.sentence)
  const hear = (answer) => {
    if (!answer.look) {
      root.classList.toggle("hw-stale", true)
      return
    }
    root.classList.toggle("hw-stale", false)
    write(sentence, answer.sentence)
    const [done, more] = answer.end ?? ["", ""]
    write(end, done)
    write(behind, done ? `${more}.` : "")
    write(asOf, `as of ${time(answer.at)}`)
    asOf.title = utc(answer.at)
    write(detail, [""].concat(answer.naive ?? [], answer.detail).join(" · "))
  }
  const following = follow(data.run, true, hear)
  return {
    update: (next) => following.turnTo(next.run),
    unmount: () => following.stop(),
  }
}
