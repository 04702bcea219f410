// What is wrong with the run's supervisor, at the head of every page; and a nudge to the page when its buttons must change.
import { element, write } from "./dom.js"
import { follow } from "./poll.js"

export function mount(root, data, setTriggerValue) {
  const words = element("div", "hw-banner")
  words.setAttribute("role", "status")
  root.replaceChildren(words)
  let shown = data.state
  const hear = (answer) => {
    if (answer.failedAt) {
      const silent = Date.now() - answer.failedAt > 3000
      write(words, answer.error ?? (silent ? "The dashboard does not answer; the job goes on without it. Trying again…" : ""))
      return
    }
    write(words, answer.trouble ?? "")
    const now = `${answer.supervisor} ${answer.look.word} ${answer.life}`
    if (now !== shown) {
      shown = now
      setTriggerValue("changed", now)
    }
  }
  const following = follow(data.run, false, hear)
  return {
    update(next) {
      shown = next.state
      following.turnTo(next.run)
    },
    unmount: () => following.stop(),
  }
}
