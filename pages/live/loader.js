// The only script that travels with the component: it fetches the module of its part once and hands over to it.
// Streamlit calls it again when data or theme change, and once more to clean up.
const mounted = new WeakMap()

export default function (component) {
  const { data, parentElement, setTriggerValue } = component
  const root = parentElement.querySelector(".hw-root")
  const there = mounted.get(root)
  if (there) {
    there.then((part) => part?.update(data))
  } else {
    const module = import(new URL(`${data.files}${data.part}.js`, document.baseURI).href)
    const part = module.then((m) => (root.isConnected ? m.mount(root, data, setTriggerValue) : null))
    part.catch((error) => console.error("Headway's live view could not be loaded", error))
    mounted.set(root, part)
  }
  return () => {
    mounted.get(root)?.then((part) => part?.unmount())
    mounted.delete(root)
  }
}
