"""The sections of the page that hold figures: what each asks, and what it draws of every scene."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from replay.report import figures
from replay.report.charts import Chart, Panels
from replay.report.scenes import ALIKE, Found, Rows, Scene
from replay.report.words import listed, percent


@dataclass(frozen=True, slots=True)
class Story:
    """What all sections draw from."""

    found: Found
    scenes: Sequence[Scene]
    phases: Rows
    own: str | None
    seeds: int
    slo_s: float | None

    @property
    def several(self) -> bool:
        """Whether scenes must be told apart."""
        return len(self.scenes) > 1


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart with its words."""

    name: str
    """Of its PNG file, without the ending."""
    title: str
    chart: Chart
    caption: str
    alt: str
    queries: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not (self.chart.panels if isinstance(self.chart, Panels) else self.chart.bars)


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, a sentence that says how to read what follows, figures, and the queries whose data follow them."""

    id: str
    heading: str
    lead: str
    data: tuple[str, ...]
    figures: tuple[Figure, ...]


def sections(story: Story) -> list[Section]:
    """The sections in the order in which they are read."""
    return [section(story) for section in (delivered, possible, gpu_time, counter, over_time, latency)]


def each(
    story: Story,
    name: str,
    chart_of: Callable[[Scene], Chart],
    caption: Callable[[Scene], str],
    alt: Callable[[Scene, Chart], str],
    queries: tuple[str, ...],
    title: str = "",
) -> list[Figure]:
    """A figure for each scene."""
    made = []
    for n, scene in enumerate(story.scenes, 1):
        chart = chart_of(scene)
        of = f"{title}: {scene.name}" if title and story.several else title or (scene.name if story.several else "")
        file = f"{name}-{n}" if story.several else name
        made.append(Figure(file, of, chart, caption(scene).strip(), alt(scene, chart), queries))
    return made


def delivered(story: Story) -> Section:
    """Which calls were delivered."""
    found = story.found
    on_time = f"{story.slo_s:g} s" if story.slo_s is not None else "the time that its client waits for one attempt"
    back = "Service has recovered (✓) when calls are on time again as often as before the overload."
    why = f", since their headline figures agree within {percent(ALIKE)}"
    return Section(
        "delivered",
        "Which calls were delivered, by when they arrived",
        f"Every policy gets the same calls. A call is on time within {on_time} of its arrival. "
        f"{back if found['recovery'] else ''}",
        ("delivered_over_time",),
        tuple(
            each(
                story,
                "delivered",
                lambda scene: figures.delivered_over_time(found, scene, story.phases, story.own, story.seeds),
                lambda scene: in_panels(scene, why),
                lambda scene, _: f"Share of arriving calls that were delivered, over time. {by_phase(found, scene)}",
                ("delivered_over_time", "recovery", "summary"),
            )
        ),
    )


def possible(story: Story) -> Section:
    """What was delivered beside what could have been."""
    found = story.found
    rows = [r for r in found["share_of_possible"] if r["phase"] is None]
    on_time = f" On time are {max(r['possible_on_time'] for r in rows):,.0f} at most." if rows else ""
    return Section(
        "possible",
        "Beside the best that was possible",
        "The most that any policy can deliver, were it to know every length and deadline beforehand and to switch "
        f"between requests without loss, for clients as patient as the most patient here.{on_time}",
        ("share_of_possible",),
        tuple(
            each(
                story,
                "possible",
                lambda scene: figures.beside_the_possible(found, scene),
                alike,
                lambda _, chart: read_out("Calls delivered, of those that could have been", chart),
                ("share_of_possible",),
            )
        ),
    )


def gpu_time(story: Story) -> Section:
    """Where GPU time went."""
    found = story.found
    return Section(
        "gpu-time",
        "Where the GPU's time went",
        "Useful is what went into responses that were delivered; all else was wasted, by its cause. The least wasteful "
        "policy first.",
        ("wasted_compute",),
        tuple(
            each(
                story,
                "gpu-time",
                lambda scene: figures.gpu_time(found, scene),
                lambda scene: f"GPU-seconds, mean over seeds. {reused(found, scene)}{alike(scene)}",
                lambda _, chart: read_out("GPU time", chart),
                ("wasted_compute",),
            )
        ),
    )


def counter(story: Story) -> Section:
    """The counter and the truth."""
    return Section(
        "counter",
        "What the engine's counter shows, and what was done",
        "prompt_tokens_total counts a whole prompt, cached tokens included, when its first output appears. Prompts "
        "whose client gave up before that are computed, but never counted.",
        ("counter_gap",),
        tuple(
            each(
                story,
                "counter",
                lambda scene: figures.counter_view(story.found, scene),
                alike,
                lambda _, chart: read_out("Prompt tokens computed, and in the counter", chart),
                ("counter_gap",),
            )
        ),
    )


def over_time(story: Story) -> Section:
    """Queues and retries."""
    found = story.found
    queues = each(
        story,
        "queue",
        lambda scene: figures.queue_over_time(found, scene, story.phases),
        lambda scene: f"In the queues and in the batches of all replicas. {ends(found, scene)}{in_panels(scene)}",
        lambda _, chart: read_out("Requests waiting", chart),
        ("queue_over_time",),
        "Requests that wait and that run",
    )
    retries = each(
        story,
        "retries",
        lambda scene: figures.retries_over_time(found, scene, story.phases),
        in_panels,
        lambda _, chart: read_out("Retries", chart),
        ("retries_over_time",),
        "Attempts and timeouts a second",
    )
    return Section(
        "over-time",
        "Queues and retries over time",
        "Retries that come faster than the engine answers keep its queue full even when fewer calls arrive.",
        ("queue_over_time", "retries_over_time"),
        (*queues, *retries),
    )


def latency(story: Story) -> Section:
    """How long users waited."""
    return Section(
        "latency",
        "How long users waited",
        "Of all calls whose user did not leave of their own accord, the same calls under every policy, the share that "
        "had its whole response within each time of its arrival.",
        ("survivor_latency_curve", "survivor_latency"),
        tuple(
            each(
                story,
                "latency",
                lambda scene: figures.survivor_latency(story.found, scene),
                alike,
                lambda _, chart: read_out("Waits", chart),
                ("survivor_latency_curve", "survivor_latency"),
            )
        ),
    )


def in_panels(scene: Scene, why: str = "") -> str:
    """Which policies share a panel, and which have none."""
    there = scene.in_panels()
    left_out = [s.policy for s in scene.shown if s not in there]
    more = f"Without a panel, for want of room, but in the data: {listed(left_out)}." if left_out else ""
    return f"{alike(scene, why)}{more}"


def alike(scene: Scene, why: str = "") -> str:
    """Which policies are drawn as one."""
    groups = [" = ".join(s.policies) for s in scene.shown if len(s.policies) > 1]
    return f"Drawn as one{why}: {'; '.join(groups)}. " if groups else ""


def reused(found: Found, scene: Scene) -> str:
    """How much of the abandoned work a later execution reused."""
    best = max(scene.rows(found["wasted_compute"]), key=lambda r: r["salvaged_gpu_s"], default=None)
    if best is None or best["salvaged_gpu_s"] < 0.05:
        return ""
    return (
        f"Of what a client gave up on, retries reused some through the prefix cache: {best['salvaged_gpu_s']:,.0f} s "
        f"with {best['policy']}, at most. "
    )


def ends(found: Found, scene: Scene) -> str:
    """Where the time axis leaves out what comes later."""
    end = figures.time_end(found)
    last: dict[str, float] = {}
    for row in scene.rows(found["queue_over_time"]):
        if row["waiting"] + row["running"] > 0 and row["end_s"] > end:
            last[row["policy"]] = row["end_s"]
    if not last:
        return ""
    return f"Beyond the {end:,.0f} s shown: {listed([f'{p} is busy until {t:,.0f} s' for p, t in last.items()])}. "


def by_phase(found: Found, scene: Scene) -> str:
    """Delivered calls by policy and phase, read out."""
    said = []
    for one in scene.in_panels():
        rates = [
            f"{percent(r['delivered_call_rate'])} {r['phase']}"
            for r in scene.rows(found["delivered_by_phase"], one.policy)
            if r["delivered_call_rate"] is not None
        ]
        said.append(f"{one.policy}: {', '.join(rates)}")
    return "; ".join(said)


def read_out(what: str, chart: Chart) -> str:
    """A chart in words, for those who cannot see it."""
    if isinstance(chart, Panels):
        said = [f"{p.titles[0]}: {p.notes[0]}" for p in chart.panels]
    else:
        said = [f"{b.label}: {b.note}" for b in chart.bars]
    return f"{what}. {'; '.join(said)}"
