"""What a run is told: an experiment file, flags, the environment, what the log shows; and which of them won."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml

from connectors.synthetic import Added
from replay.censoring import Uncensor
from replay.errors import BadConfig, UnknownName
from replay.files import write_whole
from replay.phases import Phase, around
from replay.policies.catalogue import CATALOGUE, apply, entry, merged, resolve
from replay.policies.clients import expanded
from replay.policies.knobs import Client, Fleet, Network, Policy, RetryBudget
from replay.profiles.loader import find_profile, with_settings
from replay.profiles.profile import EngineSettings, Profile
from replay.settings import check_keys, complaint, converted
from trace_schema.fold import ObservedClient

Seconds = Annotated[float, msgspec.Meta(ge=0.0)]


class Overload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the overload was, in seconds from the start of the trace."""

    start_s: Seconds
    end_s: Seconds

    def __post_init__(self) -> None:
        if self.end_s <= self.start_s:
            raise ValueError("end_s must come after start_s")


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides a run's results, but for the trace."""

    profile: str | list[str] | None = None
    """Engine profiles, by name or file: one or several. See `replay profiles`."""
    engine: dict[str, Any] = {}
    """Settings of the engine that differ from the profile's: `preset`, an engine of `replay engines`, and above it
    those by the names of `EngineSettings`."""
    client: Client = Client()
    """How clients behave under every policy that does not say otherwise; one of `replay clients` by its name."""
    budget: RetryBudget | None = None
    """What limits their retries, likewise."""
    network: Network = Network()
    policies: Annotated[list[str | dict[str, Any]], msgspec.Meta(min_length=1)] | None = None
    """Names of the catalogue, files, or policies written out: `name`, `based_on` (a name), and the knobs to turn.

    Null: every policy of the catalogue that the trace can tell apart.
    """
    fleet: Fleet | Annotated[list[Fleet], msgspec.Meta(min_length=1)] = Fleet()
    """The engines behind the gateway: one fleet, or several to compare."""
    partition_by: tuple[Literal["model", "deployment", "tenant"], ...] = ("model", "deployment")
    """Calls that differ in one of these are replayed apart, each part on a fleet of its own."""
    seeds: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1
    overload: Overload | None = None
    """Null: what the trace says, or what its arrivals show."""
    as_logged: str | None = None
    """The policy under which the log was recorded: it is replayed first, and compared with what the log shows."""
    slo_s: Seconds | None = None
    """A call is on time when it is delivered so many seconds after its arrival; null: the client's timeout."""
    uncensor: Uncensor = "kaplan-meier"
    """Outputs that an abort cut and patience that a response cut are drawn from the log's own law, given that they are
    longer; none: taken as they were seen."""
    until_s: Seconds | None = None
    drain_s: Seconds | None = None
    warmup_s: Seconds = 0.0
    timeline_interval_s: Seconds = 1.0
    thresholds: list[str] = []
    """Conditions under which the command fails, such as "delivered_call_rate < 99%". They change no result."""


Sourced = Mapping[str, tuple[Any, str]]
"""Settings by dotted key: (value, where it comes from)."""


def read_experiment(path: str) -> dict[str, Any]:
    """The settings in an experiment file, whose paths count from its own directory. Raises BadConfig."""
    settings = expanded(read_yaml(path))
    converted(settings, Experiment, path)
    place = Path(path).parent
    if settings.get("profile") is not None:
        settings["profile"] = [from_file(p, place) for p in listed(settings["profile"])]
    for fleet in listed(settings.get("fleet") or []):
        for engines in fleet.get("beside", []):
            engines["profile"] = from_file(engines["profile"], place)
    if settings.get("policies") is not None:
        settings["policies"] = [from_file(p, place) for p in settings["policies"]]
    return settings


def template() -> str:
    """An experiment file with every setting at its default, explained."""
    return (files("replay") / "experiment.yaml").read_text()


def write_template(path: str) -> None:
    """Write the template to a new file. Raises BadConfig when there is one already, or it cannot be written."""
    if os.path.lexists(path):
        raise BadConfig(f"{path}: exists already, and is left as it is")
    write_whole(path, template().encode())


def read_yaml(path: str) -> dict[str, Any]:
    """A YAML file that holds a mapping. Raises BadConfig."""
    try:
        loaded = yaml.safe_load(Path(path).read_text())
    except OSError as error:
        raise BadConfig(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BadConfig(f"{path}{line}: is not YAML: {error.problem}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path}: is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict):
        raise BadConfig(f"{path}: must hold keys and values")
    return loaded


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings as (dotted key, value)."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


SHOWN = ("timeout_s", "max_attempts", "backoff_base_s", "backoff_factor", "backoff_jitter")
"""Settings of clients that a log may show."""


def log_settings(client: ObservedClient, added: Added | None = None) -> dict[str, Any]:
    """What a trace shows of its clients, as settings. Their timeout is on each call of the trace already.

    With users who were added to it, it is no longer what any policy left behind.
    """
    known = {
        "max_attempts": (added and added.max_attempts) or client.max_attempts,
        "backoff_base_s": client.backoff_base_s,
        "backoff_factor": client.backoff_factor,
        "backoff_jitter": client.backoff_jitter,
        "streams_retried": client.streams_retried,
    }
    known = {key: value for key, value in known.items() if value is not None}
    settings: dict[str, Any] = {"client": known} if known else {}
    if (client.timeouts or client.retries) and added is None:
        settings["as_logged"] = "cancel" if client.retries else "no_retry"
    return settings


def other_clients(client: Client, seen: ObservedClient) -> list[str]:
    """Where the clients of a run differ from those that the log shows: such a run cannot be held against the log."""
    pairs = {name: (getattr(client, name), getattr(seen, name)) for name in SHOWN}
    return [
        f"client.{name} is {ours:g}, in the log {theirs:g}"
        for name, (ours, theirs) in pairs.items()
        if ours is not None and theirs is not None and ours != theirs
    ]


def layered(layers: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[Experiment, Sourced]:
    """One experiment from (source, settings), later ones winning key by key; and the source of each setting.

    Raises BadConfig for an impossible setting.
    """
    together: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, settings in layers:
        settings = expanded(settings)
        together = merged(together, settings)
        sources |= {key: source for key, _ in flat(settings)}
    experiment = converted(together, Experiment, "settings")
    resolved = {key: (value, sources.get(key, "default")) for key, value in flat(msgspec.to_builtins(experiment))}
    return experiment, resolved


def policies_of(experiment: Experiment) -> list[Policy]:
    """The policies of an experiment over its clients and network, the log's own first.

    Raises BadConfig for a policy that is impossible or named twice.
    """
    base = Policy(name="base", client=experiment.client, budget=experiment.budget, network=experiment.network)
    wanted_policies = list(CATALOGUE) if experiment.policies is None else experiment.policies
    policies = [policy_of(wanted, base) for wanted in wanted_policies]
    own = experiment.as_logged
    if own is not None:
        given = zip(wanted_policies, policies, strict=True)
        known = [policy for wanted, policy in given if own in (wanted, policy.name)]
        policies = [*(known or [policy_of(own, base)]), *(p for p in policies if p not in known)]
    names = [p.name for p in policies]
    for name in names:
        if names.count(name) > 1:
            raise BadConfig(f"policy {name!r} is given twice")
    return policies


def policy_of(wanted: str | Mapping[str, Any], base: Policy) -> Policy:
    """A policy by name, from a file, or written out. Raises BadConfig."""
    if isinstance(wanted, Mapping):
        return written_policy(wanted, base, f"policy {wanted.get('name', '')!r}")
    if is_file(wanted):
        return written_policy(read_yaml(wanted), base, wanted)
    return resolve(wanted, base)


def is_file(name: str | Mapping[str, Any]) -> bool:
    """Whether a policy or a profile is given by the file that holds it."""
    return isinstance(name, str) and name.endswith((".yaml", ".yml", ".json"))


def from_file(name: Any, place: Path) -> Any:
    """A policy or profile as written in a file of directory `place`, from which paths count."""
    return str(place / name) if is_file(name) else name


def listed(values: Any) -> list[Any]:
    """One value or several, as a list."""
    return values if isinstance(values, list) else [values]


def written_policy(settings: Mapping[str, Any], base: Policy, where: str) -> Policy:
    """A policy from its settings. Raises BadConfig that names the key."""
    knobs = expanded(settings)
    name = knobs.pop("name", None)
    if not isinstance(name, str) or not name.replace("_", "").replace("-", "").isalnum():
        raise BadConfig(f"{where}: a policy needs a name of letters, digits, '_' and '-'")
    based_on = knobs.pop("based_on", None)
    check_keys(knobs, Policy, where)
    if based_on is not None:
        if based_on not in list(CATALOGUE):
            raise BadConfig(f"{where}: based_on: {UnknownName.of('policy', str(based_on), CATALOGUE)}")
        knobs = merged(entry(based_on).knobs, knobs)
    try:
        return apply(knobs, base, name)
    except msgspec.ValidationError as error:
        raise BadConfig(f"{where}: {complaint(error, Policy)}") from error


def profiles_of(experiment: Experiment) -> list[Profile]:
    """The engine profiles of an experiment, with its settings applied. Raises BadConfig and BadInput."""
    if experiment.profile is None:
        raise BadConfig(
            "no engine profile: give one with --profile (replay profiles lists them), or make one with replay calibrate"
        )
    settings = {key: value for key, value in experiment.engine.items() if key != "preset"}
    check_keys(settings, EngineSettings, "settings", "engine.")
    return [with_settings(find_profile(name), experiment.engine) for name in listed(experiment.profile)]


def fleets_of(experiment: Experiment) -> list[Fleet]:
    """The fleets of an experiment."""
    return listed(experiment.fleet)


def phases_of(experiment: Experiment, found: list[Phase]) -> list[Phase]:
    """The phases of a run: around the overload that it was told of, else those found in the trace."""
    if experiment.overload is None:
        return found
    return around(experiment.overload.start_s, experiment.overload.end_s)
