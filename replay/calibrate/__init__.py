"""Engine profiles from measurements, and measurements against predictions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from connectors.vllm_steps import Config, Header, read_step_log
from replay.calibrate.fit import FitReport, drift, fit, scaled
from replay.calibrate.recording import engine_settings, read_meta
from replay.profiles.profile import EngineSettings, Profile
from replay.profiles.versions import version_in, versioned
from replay.settings import converted


def calibrate(
    step_log: str, engine: Mapping[str, Any] | None = None, speed_of: str | None = None
) -> tuple[Profile, FitReport]:
    """A profile whose step times are fitted to a step log.

    The engine's settings are those in the `.meta.json` beside the log, else in the log's own first line, with the rules
    of the version of vLLM that it names; `engine` overrides them. `speed_of` is the step log of another hour, in which
    the machine may have been slower or faster: the step times are scaled by one number, so that they last as long as
    that log's in all. Raises BadInput when the log cannot tell, BadConfig for an unknown setting.
    """
    log = read_step_log(step_log)
    step_time, report = fit(log, step_log)
    source = f"fitted to {step_log}"
    if speed_of is not None:
        factor = drift(read_step_log(speed_of), step_time)
        step_time = scaled(step_time, factor)
        source += f", times {factor:.3f}: the speed of {speed_of}"
    settings = {**settings_beside(step_log, log.config), **(engine or {})}
    profile = Profile(
        name=Path(step_log).name.split(".")[0],
        engine=converted(settings, EngineSettings, "engine settings"),
        step_time=step_time,
        source=source,
        error=f"{report.mape:.1%} mean absolute, {report.p90:.1%} at p90, on held-back steps",
    )
    return profile, report


def settings_beside(step_log: str, config: Config | Header | None) -> dict[str, Any]:
    """What is known of the engine that wrote a step log."""
    path = Path(step_log)
    meta = path.with_name(f"{path.name.split('.')[0]}.meta.json")
    if meta.exists():
        return msgspec.structs.asdict(engine_settings(read_meta(meta).engine, meta))
    if isinstance(config, Header):
        return versioned(config.settings, version_in(config.vllm_version))
    return {} if config is None else config.settings
