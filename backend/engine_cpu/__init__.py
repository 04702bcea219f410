"""The real SGLang on a CPU: installs it with a tiny model and says how it is started. For trials and tests, not for work.

`place` knows where things lie and the settings of a run that uses them, `install` puts them there (`make engine-cpu`),
`make_model` and `shim/` run inside the engine's own Python. Standard library only, so that any Python can install.
"""
