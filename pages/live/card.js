// The run's card in the sidebar, on every page: state, age, progress. It also keeps the browser's tab up to date.
import { element, state, write } from "./dom.js"
import { follow } from "./poll.js"
import { showInTab } from "./tab.js"

export function mount(root, data) {
  const line = element("div", "hw-card-line")
  const bar = element("div", "hw-bar-done")
  const where = element("span", "hw-dim")
  let drawn = ""
  root.replaceChildren(element("div", "hw-card", line, element("div", "hw-bar", bar)))
  const hear = (answer) => {
    if (!answer.look) {
      write(where, answer.error ?? "no answer from the dashboard")
      if (!line.contains(where)) line.replaceChildren(where)
      drawn = ""
      return
    }
    const key = `${answer.look.sign}${answer.look.word}`
    if (drawn !== key) line.replaceChildren(state(answer.look), where)
    drawn = key
    where.title = "from its creation until now, or until it finished or was stopped"
    write(where, answer.age ?? "")
    bar.className = `hw-bar-done hw-fill-${answer.look.tone}`
    bar.style.width = `${((answer.share ?? 0) * 100).toFixed(1)}%`
    showInTab(answer)
  }
  const following = follow(data.run, false, hear)
  return {
    update: (next) => following.turnTo(next.run),
    unmount: () => following.stop(),
  }
}
