"""ServeGen's clients: no requests, but the rates, gaps and lengths of one client of Alibaba's Model Studio each.

Xiang et al., ServeGen (NSDI '26), https://github.com/alibaba/ServeGen, data/. A client is a pair of files. Of
`chunk-N-trace.csv`, which has no header, a row is a window of ten minutes: its start in seconds, requests per second,
the measured cv of the gaps between them, the law that fits those best (Gamma or Weibull, nothing in a window without
requests), its shape and its scale. `chunk-N-dataset.json` has laws of lengths for every six hours, each a Python dict
of probabilities by value, written as a text. Reading a client makes the requests that it describes, with a seed.
"""

from __future__ import annotations

import ast
import io
import itertools
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Meta

from connectors.base import Batch, Dropped
from connectors.files import CUT_SHORT, WholeLines, blocks
from connectors.rows import attempts_of
from connectors.synthetic.arrivals import CALLS_MOST
from connectors.synthetic.clients import Client, Lengths, Window, requests
from connectors.synthetic.gaps import SHAPE_LEAST, SHAPE_MOST, Family, Gaps
from connectors.synthetic.laws import Discrete, Law, law_of
from trace_schema.errors import BadConfig, BadInput

NUMBER = rb"[0-9.eE+-]+"
ROW = re.compile(rb"\s*%s,%s,%s,(Gamma|Weibull|),%s,%s\s*" % ((NUMBER,) * 5))
SNIFFED_ROWS, SNIFFED_BYTES = 10, 1 << 16
FILE = re.compile(r"(?P<client>.*?)-?trace\.csv(?P<packed>\.gz|\.zst)?$")
COLUMNS = 6
START_MOST_S = 1e9
RATE_MOST = 1e6
WINDOW_S = 600.0
FAMILIES: dict[str, Family] = {"Gamma": "gamma", "Weibull": "weibull"}
IDLE = Gaps("gamma", 1.0)
MEDIA = ("image", "audio", "video")
BATCH_ROWS = 100_000

Pdf = dict[float, float]
"""Probability by value."""
WrittenLaw = str | float | None


class ServeGen:
    class Options(msgspec.Struct, frozen=True, kw_only=True):
        """Which of the client's requests to make."""

        seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
        start_s: Annotated[float, Meta(ge=0.0)] = 0.0
        """Second of the data with which the trace begins."""
        duration_s: Annotated[float, Meta(gt=0.0)] | None = None
        """How long it is; without it, to the end of the data."""
        rate: Annotated[float, Meta(gt=0.0, le=1e6)] = 1.0
        """Factor of all rates."""
        dataset: str | None = None
        """File of the lengths; without it, that which lies beside."""
        prompt_tokens: WrittenLaw = None
        """Law of prompt lengths, in the place of the file's."""
        output_tokens: WrittenLaw = None

    name = "servegen"
    describes = "ServeGen's clients, chunk-N-trace.csv with its chunk-N-dataset.json: their requests are made, seeded"

    def __init__(self, options: Options) -> None:
        self.options = options
        self.prompt_tokens = given_law("prompt_tokens", options.prompt_tokens)
        self.output_tokens = given_law("output_tokens", options.output_tokens)

    def sniff(self, head: bytes, path: str) -> float:
        rows = [line for line in head[:SNIFFED_BYTES].splitlines()[:SNIFFED_ROWS] if line.strip()]
        return 1.0 if rows and all(ROW.fullmatch(row) for row in rows) else 0.0

    def read(self, path: str) -> Iterator[Batch]:
        dropped = Dropped()
        windows = windows_of(path, dropped)
        yield attempts_of({}, np.zeros(0, np.int64), source_format=self.name, source_file=path, dropped=dropped)
        if not any(window.rate_per_s for window in windows):
            return
        client = Client(name=client_of(path), windows=windows, lengths=self.lengths(path))
        asked = self.options
        end_s = windows[-1].start_s if asked.duration_s is None else asked.start_s + asked.duration_s
        refuse_too_many(windows, asked.rate, path)
        made = requests(client, start_s=asked.start_s, end_s=end_s, seed=asked.seed, rate=asked.rate)
        for first in range(0, len(made.arrival_s), BATCH_ROWS):
            part = slice(first, first + BATCH_ROWS)
            columns: dict[str, Any] = {
                "arrival_s": made.arrival_s[part] - asked.start_s,
                "prompt_tokens": made.prompt_tokens[part],
                "output_tokens": made.output_tokens[part],
            }
            rows = np.arange(first + 1, first + 1 + len(columns["arrival_s"]))
            columns["client"] = [client.name] * len(rows)
            yield attempts_of(columns, rows, source_format=self.name, source_file=path)

    def notes(self, attempts: pa.Table) -> list[str]:
        """What these requests are."""
        return [
            f"nobody sent these requests: they are made of a client's rates and lengths, with seed {self.options.seed}"
        ]

    def lengths(self, path: str) -> Sequence[Lengths]:
        """The client's lengths. Raises BadInput when they are nowhere."""
        prompt, output = self.prompt_tokens, self.output_tokens
        if prompt and output:
            return [Lengths(start_s=0.0, prompt_tokens=prompt, output_tokens=output)]
        dataset = self.options.dataset or dataset_beside(path)
        if not os.path.exists(dataset):
            raise BadInput.at(
                path,
                "has the rates of a client; its lengths are in a chunk-N-dataset.json, which must lie beside it or be "
                "named with --option dataset=FILE; or give laws, --option prompt_tokens=LAW and output_tokens=LAW",
            )
        return [
            Lengths(start_s=start, prompt_tokens=prompt or prompts, output_tokens=output or outputs)
            for start, prompts, outputs in laws_of(dataset)
        ]


def given_law(option: str, written: WrittenLaw) -> Law | None:
    """The law that an option says. Raises BadConfig."""
    try:
        return None if written is None else law_of(written)
    except ValueError as error:
        raise BadConfig(f"options of servegen: {option}: {error}") from error


def client_of(path: str) -> str:
    """A client's name, which is that of its file."""
    found = FILE.fullmatch(os.path.basename(path))
    return (found and found["client"]) or os.path.basename(path)


def dataset_beside(path: str) -> str:
    """Where the lengths lie that belong to a file of rates."""
    folder, name = os.path.split(path)
    stem, separator, _ = name.rpartition("trace.csv")
    there = [os.path.join(folder, f"{stem}dataset.json{packed}") for packed in ("", ".gz", ".zst")] if separator else []
    return next(filter(os.path.exists, there), "")


def refuse_too_many(windows: Sequence[Window], rate: float, path: str) -> None:
    """Raises BadInput where more requests would be made than a trace may hold."""
    expected = rate * sum(a.rate_per_s * (b.start_s - a.start_s) for a, b in itertools.pairwise(windows))
    if expected > CALLS_MOST:
        raise BadInput.at(path, f"describes about {expected:.3g} requests, at most {CALLS_MOST:,}: lower --option rate")


def windows_of(path: str, dropped: Dropped) -> list[Window]:
    """The windows of a file in order of time, an idle one last; rows that are none are dropped.

    After a window that is followed by none, or by one that is no window, the client is idle.
    """
    found: dict[float, Window] = {}
    file = WholeLines(path)
    row = 0
    for row, line in enumerate(io.BufferedReader(file), 1):
        if not line.strip():
            continue
        window = window_of(line.decode("utf-8", "replace").split(","))
        if isinstance(window, Window) and window.start_s in found:
            window = "a window of this start stands above"
        if isinstance(window, str):
            dropped.add(window, row)
        else:
            found[window.start_s] = window
    if file.broken:
        dropped.add(CUT_SHORT, row + 1)
    starts = sorted(found)
    length_s = float(np.diff(starts).min()) if len(starts) > 1 else WINDOW_S
    for start, following in itertools.zip_longest(starts, starts[1:]):
        if following is None or following > start + length_s:
            found[start + length_s] = Window(start_s=start + length_s, rate_per_s=0.0, gaps=IDLE)
    return [found[start] for start in sorted(found)]


def window_of(row: Sequence[str]) -> Window | str:
    """A row as a window, or why it is none."""
    if len(row) != COLUMNS:
        return f"has {len(row)} columns instead of {COLUMNS}"
    start, rate, cv, family, shape = (cell.strip() for cell in row[:5])
    try:
        numbers = [float(cell) for cell in (start, rate, cv, shape)]
    except ValueError:
        return "a start, rate, cv or shape is not a number"
    start_s, per_s, measured_cv, fitted = numbers
    if not (0.0 <= start_s <= START_MOST_S and 0.0 <= per_s <= RATE_MOST):
        return f"a start is not from 0 to {START_MOST_S:g} s, or a rate not from 0 to {RATE_MOST:g} /s"
    if per_s == 0.0:
        return Window(start_s=start_s, rate_per_s=0.0, gaps=IDLE)
    if family in FAMILIES and SHAPE_LEAST / 100 <= fitted <= SHAPE_MOST:
        return Window(start_s=start_s, rate_per_s=per_s, gaps=Gaps(FAMILIES[family], fitted))
    if not family and 0.0 <= measured_cv <= 100.0:
        return Window(start_s=start_s, rate_per_s=per_s, gaps=Gaps.of_cv("gamma", measured_cv))
    return "a law of gaps is neither Gamma nor Weibull, or its shape is out of reach"


def laws_of(path: str) -> list[tuple[float, Law, Law]]:
    """(start, law of prompts, law of outputs) in order of time, of the spans that have requests. Raises BadInput."""
    parts = list(blocks(path))
    if None in parts:
        raise BadInput.at(path, CUT_SHORT)
    try:
        spans = msgspec.json.decode(b"".join(filter(None, parts)), type=dict[str, dict[str, str]])
        found = {float(start): span_laws(span) for start, span in spans.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise BadInput.at(path, f"is no ServeGen dataset: {str(error).splitlines()[0]}") from error
    laws = [(start, *both) for start, both in sorted(found.items()) if both is not None]
    if not laws:
        raise BadInput.at(path, "has no lengths: no span of it has requests")
    return laws


def pdf(text: str) -> Pdf:
    """The probabilities that a Python dict written as a text says. Raises ValueError and SyntaxError."""
    found = ast.literal_eval(text)
    if not isinstance(found, dict):
        raise ValueError(f"{text[:40]!r} is no dict of probabilities")
    return {float(value): float(chance) for value, chance in found.items() if float(chance) != 0.0}


def span_laws(written: dict[str, str]) -> tuple[Law, Law] | None:
    """(law of prompts, law of outputs); None of a span without requests. Raises ValueError.

    The prompt of a request with media has text and media tokens, drawn apart; its images are taken to be of one size.
    """
    span = {name: pdf(text) for name, text in written.items()}
    prompt = span.get("input_tokens") or span.get("text_tokens", {})
    for kind in MEDIA:
        count, size = span.get(f"{kind}_count", {}), span.get(f"{kind}_tokens", {})
        media = combined(count, size, lambda number, tokens: number * tokens)
        prompt = combined(prompt, media or {0.0: 1.0}, lambda text, tokens: text + tokens)
    output = span.get("output_tokens", {})
    if not any(prompt) or not any(output):
        return None
    return Discrete(tuple(sorted(prompt.items()))), Discrete(tuple(sorted(output.items())))


def combined(one: Pdf, other: Pdf, operation: Any) -> Pdf:
    """The law of `operation` of two independent values."""
    found: Pdf = defaultdict(float)
    for (a, chance), (b, chance_too) in itertools.product(one.items(), other.items()):
        found[operation(a, b)] += chance * chance_too
    return dict(found)
