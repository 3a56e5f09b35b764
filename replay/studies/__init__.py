"""The two studies that this project began with, as presets of its own machinery: traffic, engines, policies, questions.

A study is a set of runs side by side, one for each scenario, in `RUN/scenario=NAME/`: each is a run directory like any
other. What they have in common is asked by SQL over the figures of all of them, and written to `RUN/results/` and
`RUN/plots/`.
"""
