// The browser tab tells the state: words in its title, a ring of progress with the state's sign as its icon.
const COLOURS = { done: "#2b9a5b", active: "#4a7bea", paused: "#c98a1b", failed: "#d2524a", dim: "#8a8e96" }
const SIGNS = {
  "▶": '<path d="M13 10l10 6-10 6z"/>',
  "❚❚": '<path d="M12 10h3v12h-3zM17 10h3v12h-3z"/>',
  "✓": '<path d="M10 16l4.5 4.5L22 12" fill="none" stroke-width="3" stroke-linecap="round"/>',
  "✕": '<path d="M11 11l10 10M21 11L11 21" fill="none" stroke-width="3" stroke-linecap="round"/>',
  "■": '<path d="M11 11h10v10H11z"/>',
}
const ROUND = 2 * Math.PI * 13

let icon = ""

export function showInTab(answer) {
  if (!answer.look) return
  const done = answer.share === null ? "" : ` ${Math.floor(answer.share * 100)}%`
  const title = `${answer.look.sign} ${answer.look.word}${done} · ${answer.run} · Headway`
  if (document.title !== title) document.title = title
  const drawn = draw(answer.look, answer.share ?? 0)
  const links = document.querySelectorAll("link[rel~='icon']")
  for (const link of links) {
    if (icon !== drawn || link.getAttribute("href") !== drawn) {
      link.setAttribute("type", "image/svg+xml")
      link.setAttribute("href", drawn)
    }
  }
  icon = drawn
}

function draw(look, share) {
  const colour = COLOURS[look.tone] ?? COLOURS.dim
  const sign = SIGNS[look.sign] ?? '<circle cx="16" cy="16" r="4"/>'
  const arc = (Math.round(share * 50) / 50) * ROUND
  const svg =
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><g fill="none" stroke-width="4">` +
    `<circle cx="16" cy="16" r="13" stroke="${colour}" opacity=".28"/>` +
    `<circle cx="16" cy="16" r="13" stroke="${colour}" stroke-dasharray="${arc.toFixed(1)} 99" transform="rotate(-90 16 16)"/></g>` +
    `<g fill="${colour}" stroke="${colour}" stroke-width="0">${sign}</g></svg>`
  return `data:image/svg+xml,${encodeURIComponent(svg)}`
}
