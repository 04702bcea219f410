"""The live view: one component that polls a JSON route each second and draws in the browser, without reruns of a page."""
