"""The page that a person reads: its numbers are those of the queries, whatever the run; it is safe and fits a phone."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from queries import load, run_query
from replay.report.headline import interval
from replay.report.page import write_page
from replay.report.tables import render
from replay.report.thresholds import judge, parse_all
from tests.queries.test_definitions import attempt, sample
from tests.queries.test_figures import S, call, execution, recovering, replica, write_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """What a test needs of a page: tables by query, numbers, figures, links, ids, headings, tags, text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.tables: dict[str, list[list[str]]] = {}
        self.numbers: list[dict[str, str]] = []
        self.figures: dict[str, list[str]] = {}
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.headings: list[str] = []
        self.text: list[str] = []
        self.open: list[tuple[str, dict[str, str]]] = []
        self.query = self.figure = ""
        self.cell: str | None = None
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.tags.add(tag)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found["href"])
            if self.figure:
                self.figures[self.figure].append(found["href"])
        if tag == "table" and "data-query" in found:
            self.query = found["data-query"]
            self.tables[self.query] = []
        if tag == "figure":
            self.figure = found["data-figure"]
            self.figures[self.figure] = []
        if tag == "tr" and self.query:
            self.tables[self.query].append([])
        if tag in ("td", "th") and self.query:
            self.cell = found.get("data-value")
            self.tables[self.query][-1].append(self.cell or "")
        if tag == "data":
            self.numbers.append({**found, "text": ""})
        if tag not in VOID:
            self.open.append((tag, found))

    def handle_endtag(self, tag: str) -> None:
        opened, _ = self.open.pop()
        assert opened == tag
        if tag == "table":
            self.query = ""
        if tag == "figure":
            self.figure = ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        inside = [tag for tag, _ in self.open]
        if "style" in inside:
            return
        self.text.append(data)
        if inside[-1:] == ["data"]:
            self.numbers[-1]["text"] += data
        if inside[-1:] == ["h1"] or inside[-1:] == ["h2"]:
            self.headings.append(data)
        if self.query and inside[-1] in ("td", "th") and self.cell is None:
            self.tables[self.query][-1][-1] += data

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())


def page_of(run: str, place: Path, **more: Any) -> Page:
    return Page(write_page(run, str(place / "page.html"), **more).read_text())


@pytest.fixture(scope="module")
def page(run_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return page_of(str(run_directory), tmp_path_factory.mktemp("page"))


def holds_its_queries(page: Page, run: str) -> bool:
    """Whether each table of the page is what `replay query` prints, to the last digit."""
    assert page.tables
    for name, rows in page.tables.items():
        printed = render(run_query(run, name), "csv")
        assert rows == list(csv.reader(io.StringIO(printed))), name
    return True


def test_every_table_is_the_output_of_its_query(page: Page, run_directory: Path) -> None:
    assert holds_its_queries(page, str(run_directory))


def test_every_figure_links_the_data_and_the_sql_that_it_was_drawn_from(page: Page) -> None:
    assert list(page.figures) == ["delivered", "possible", "gpu-time", "counter", "queue", "retries", "latency"]
    for links in page.figures.values():
        names = [link.removeprefix("#data-") for link in links]
        assert names
        assert set(names) <= set(page.tables)
    for name in page.tables:
        assert load(name).sql.strip() in "".join(page.text)
        assert f"replay query {name} RUN" in page.words
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)


def test_every_number_in_the_sentences_is_the_cell_that_it_names(page: Page, run_directory: Path) -> None:
    cells = [n for n in page.numbers if "data-query" in n]
    assert len({n["data-column"] for n in cells}) >= 5
    tables = {name: run_query(str(run_directory), name).to_pylist() for name in {n["data-query"] for n in cells}}
    for n in cells:
        (row,) = [
            r
            for r in tables[n["data-query"]]
            if (r["policy"], r["profile"], r["fleet"]) == (n["data-policy"], n["data-profile"], n["data-fleet"])
        ]
        value = row[n["data-column"]]
        assert str(value) == n["value"]
        if n["text"].endswith("%"):
            assert float(n["text"][:-1]) == pytest.approx(100 * value, abs=0.5)
        elif n["text"] != "never":
            assert float(n["text"].rstrip(" smin").replace(",", "")) == pytest.approx(value, rel=0.01, abs=0.5)


def test_the_answer_and_what_follows_of_it_agree_with_the_queries(page: Page, run_directory: Path) -> None:
    rates = {r["policy"]: r["delivered_call_rate"] for r in run_query(str(run_directory), "summary").to_pylist()}
    said = re.findall(r"(\d+(?:\.\d+)?)%", page.headings[0])
    assert said
    assert all(any(abs(float(x) - 100 * rate) <= 0.5 for rate in rates.values()) for x in said)
    derived = {n["data-derived"]: n["text"] for n in page.numbers if "data-derived" in n}
    recovered = [r["recovered_share"] for r in run_query(str(run_directory), "recovery").to_pylist()]
    if "recovery" in derived:
        assert derived["recovery"] == f"{recovered.count(1.0)} of {len(recovered) - recovered.count(None)}"
    if "seeds" in derived:
        assert float(derived["seeds"]) == pytest.approx(100 * abs(rates["coalesce"] - rates["cancel"]), abs=0.06)


def test_sections_come_in_the_order_of_a_readers_questions(page: Page) -> None:
    assert page.headings[1:] == [
        "Which calls were delivered, by when they arrived",
        "Beside the best that was possible",
        "Where the GPU's time went",
        "What the engine's counter shows, and what was done",
        "Queues and retries over time",
        "How long users waited",
        "All policies",
        "What this rests on",
        "How this page was made",
    ]
    assert "Open loop" in page.words
    assert "--set" in page.words or "--config" in page.words


def test_a_page_needs_nothing_but_itself(page: Page) -> None:
    assert not page.tags & {"script", "img", "iframe", "object", "base"}
    assert all(link.startswith("#") for link in page.links)
    assert "url(http" not in page.html
    assert "@import" not in page.html


def test_figures_lie_beside_the_page_as_png_files(run_directory: Path, tmp_path: Path) -> None:
    page = page_of(str(run_directory), tmp_path)
    files = {path.stem: path.read_bytes() for path in (tmp_path / "page_files").iterdir()}
    assert files.keys() == page.figures.keys()
    assert all(content.startswith(b"\x89PNG") for content in files.values())


def test_equal_runs_give_equal_bytes(run_directory: Path, tmp_path: Path) -> None:
    shutil.copytree(run_directory, tmp_path / "other place")
    pages = [write_page(str(run), str(tmp_path / f"{n}" / "page.html")).read_bytes()
             for n, run in enumerate((run_directory, tmp_path / "other place", run_directory))]  # fmt: skip
    assert pages[0] == pages[1] == pages[2]


def lost(i: int, arrival: float) -> dict[str, Any]:
    return call(i, arrival, None, "failed", reason="retries_exhausted", attempts=2)


def cell(calls: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"calls": calls, "replicas": replica(1), **more}


HOSTILE = "<img onerror>&amp;\"'$x_y$ {{ 7 * 7 }}"
WORKED = {
    "executions": [execution(0, "lost", "aborted", attended_prefill_ns=S), execution(1, "delivered")],
    "attempts": [attempt(0, 0, 0, 0, 2.0, "timeout"), attempt(1, 0, 1, 1, 3.0, "ok")],
    "timeline": [sample(1.0, waiting=3), sample(30.0)],
}
RUNS: dict[str, tuple[dict[tuple[str, int], Any], dict[str, Any]]] = {
    "one policy, one seed": ({("p", 0): cell(recovering(30.0), **WORKED)}, {"as_logged": "p"}),
    "no execution at all": ({("p", 0): cell(recovering(30.0)), ("q", 0): cell(recovering(200.0))}, {}),
    "nothing delivered": ({("p", 0): cell([lost(i, float(i)) for i in range(90)], **WORKED)}, {"as_logged": "p"}),
    "one call": ({("p", 0): cell([call(0, 0.0, None, "unresolved")])}, {}),
    "no call that counts": ({("p", 0): cell([call(0, 0.0, 0.0, "failed", reason="rejected:too_long", eligible=False)])}, {}),  # noqa: E501
    "a hostile name": ({(HOSTILE, 0): cell(recovering(30.0), **WORKED), ("q", 0): cell(recovering(90.0))}, {"as_logged": HOSTILE}),  # noqa: E501
    "seeds that differ": ({("p", s): cell(recovering(30.0 + 60.0 * s), **WORKED) for s in range(3)}, {"as_logged": "p"}),  # noqa: E501
    "a cut": ({("p", 0): cell([*recovering(30.0), call(120, 119.5, None, "unresolved")])}, {"until_s": 125.0, "warmup_s": 2.0}),  # noqa: E501
    "many policies": ({(f"policy_{k:02}", 0): cell(recovering(20.0 + 9.0 * k), **WORKED) for k in range(20)}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_no_run_breaks_the_page(name: str, tmp_path: Path) -> None:
    cells, settings = RUNS[name]
    run = write_run(tmp_path / "run", cells, **settings)
    page = page_of(run, tmp_path)
    assert holds_its_queries(page, run)
    assert "nan" not in page.html.lower().replace("finance", "")
    assert "Undefined" not in page.words


def test_names_are_words_whatever_they_hold(tmp_path: Path) -> None:
    cells, settings = RUNS["a hostile name"]
    page = page_of(write_run(tmp_path / "run", cells, **settings), tmp_path)
    assert "img" not in page.tags
    assert HOSTILE in page.words
    assert "49" not in page.headings[0]


def test_a_run_without_an_overload_speaks_of_none(tmp_path: Path) -> None:
    run = Path(write_run(tmp_path / "run", {("p", 0): cell(recovering(30.0), **WORKED)}))
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"phase": ["all"], "start_s": [0.0], "end_s": pa.array([None], pa.float64())}), run / "phases.parquet"
    )
    page = page_of(str(run), tmp_path)
    assert "overload" not in page.words.split("The queries")[0].lower().replace("recovery", "")
    assert holds_its_queries(page, str(run))


def test_a_run_that_is_not_finished_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {("p", 0): cell(recovering(30.0))}, replays=4)
    assert "The run is not finished: 1 of 4 replays are in" in page_of(run, tmp_path).words


def test_profiles_and_fleets_have_figures_of_their_own(tmp_path: Path) -> None:
    root = Path(write_run(tmp_path / "run", {(p, 0): cell(recovering(30.0), **WORKED) for p in ("p", "q")}))
    for table in ("calls", "executions", "attempts", "replicas", "timeline"):
        for policy in ("p", "q"):
            place = root / table / f"policy={policy}"
            shutil.copytree(place / "profile=p" / "fleet=1x", place / "profile=p" / "fleet=2x")
    page = page_of(str(root), tmp_path)
    assert len(page.figures) == 14
    assert len(list((tmp_path / "page_files").iterdir())) == 14
    assert holds_its_queries(page, str(root))
    assert "p, 2x" in page.words


def test_what_breached_a_threshold_comes_first(run_directory: Path, tmp_path: Path) -> None:
    judged = judge(str(run_directory), parse_all(["*:wasted_compute_frac >= 0"]))
    page = page_of(str(run_directory), tmp_path, judgements=judged)
    assert page.headings[0] == "Thresholds breached"
    assert "BREACHED *:wasted_compute_frac >= 0" in page.words


def test_an_interval_is_a_range_of_few_seeds_and_a_bootstrap_of_more() -> None:
    few = interval([0.2, 0.4])
    assert (few.mean, few.low, few.high) == (pytest.approx(0.3), 0.2, 0.4)
    more = interval([0.1, 0.2, 0.3, 0.4, 0.5])
    assert 0.1 < more.low < more.mean < more.high < 0.5
    assert more == interval([0.1, 0.2, 0.3, 0.4, 0.5])
    assert interval([0.5, 0.5, 0.5]).text() == ""


def test_the_command_writes_the_page_and_prints_no_data(
    run_directory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from replay.cli import main

    target = tmp_path / "new" / "answer.html"
    with pytest.raises(SystemExit) as exit:
        main(["report", str(run_directory), "-o", str(target)])
    out, err = capsys.readouterr()
    assert (exit.value.code or 0) == 0
    assert out == ""
    assert str(target) in err
    assert Page(target.read_text()).figures


def browser(page: Path, width: int, tmp_path: Path) -> tuple[str, str]:
    """The DOM of a page that shows another in a frame so wide, and what the browser's console said."""
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.replace("WIDTH", str(width)).replace("PAGE", page.name))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update", f"--user-data-dir={tmp_path / 'profile'}",
             "--window-size=1400,900", "--allow-file-access-from-files",
             "--enable-logging=stderr", "--log-level=0", "--dump-dom"]  # fmt: skip
    done = subprocess.run(
        [str(CHROMIUM), *flags, frame.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


FRAME = """<!doctype html><iframe src="PAGE" style="border:0;width:WIDTHpx;height:844px"></iframe><script>
onload = () => {
  const inside = document.querySelector("iframe").contentDocument;
  inside.querySelectorAll("details").forEach(d => d.open = true);
  document.body.dataset.widths = [inside.defaultView.innerWidth, inside.documentElement.scrollWidth].join();
  document.body.dataset.figures = [...inside.querySelectorAll("figure svg")].filter(s => s.clientWidth > 0).length;
  console.log("console works");
};
</script>"""
"""All the page's data unfolded, and measured; a frame may be narrower than the narrowest window of the browser."""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_the_page_without_scrolling_sideways_or_complaints(
    run_directory: Path, width: int, tmp_path: Path
) -> None:
    page = write_page(str(run_directory), str(tmp_path / "page.html"))
    dom, console = browser(page, width, tmp_path)
    found = re.search(r'data-widths="(\d+),(\d+)"', dom)
    assert found is not None
    window, content = map(int, found.groups())
    assert window == width
    assert content <= window
    assert 'data-figures="7"' in dom
    assert "console works" in console
    assert len(console.splitlines()) == 1
