"""The engine profiles that are shipped."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from replay.cli.group import cli, json_option
from trace_schema.errors import BadConfig

if TYPE_CHECKING:
    from replay.profiles.named import Measured
    from replay.profiles.profile import Profile


@cli.command()
@click.argument("action", type=click.Choice(["list", "show"]), default="list")
@click.argument("name", required=False)
@click.option("--gpu", help="Only those of this GPU: h100, H100-SXM5-80GB, ...")
@click.option("--model", help="Only those of this model: llama-3.1-8b, meta-llama/Llama-3.1-8B, ...")
@click.option("--tp", type=click.IntRange(min=1), help="Only those on so many GPUs.")
@click.option("--dtype", help="Only those of this number format: bf16 (fp16 is taken as it) or fp8.")
@click.option("--engine", help="Only those of this engine: vllm, sglang or tensorrt-llm.")
@json_option
def profiles(
    action: str,
    name: str | None,
    gpu: str | None,
    model: str | None,
    tp: int | None,
    dtype: str | None,
    engine: str | None,
    as_json: bool,
) -> None:
    """List the engine profiles that are shipped, or show one: replay profiles show NAME.

    A name is GPU/MODEL/tpN/DTYPE/ENGINE. What was not measured is guessed from the nearest that was.
    """
    import msgspec

    from replay.profiles.loader import find_profile
    from replay.profiles.named import measured

    if action == "show":
        if name is None:
            raise BadConfig("replay profiles show NAME: which one? replay profiles lists them")
        profile = find_profile(name)
        shown = msgspec.json.format(msgspec.json.encode(profile), indent=2).decode()
        click.echo(shown if as_json else profile_text(profile))
        return
    if name is not None:
        raise BadConfig(f"replay profiles list {name}: lists are narrowed with --gpu, --model, --tp, --dtype, --engine")
    wanted = asked_for(gpu, model, tp, dtype, engine)
    rows = {key: row for key, row in measured().items() if wanted(row)}
    click.echo(json.dumps(records(rows), indent=1) if as_json else listing(rows))


def asked_for(
    gpu: str | None, model: str | None, tp: int | None, dtype: str | None, engine: str | None
) -> Callable[[Measured], bool]:
    """Whether a row is of what was asked for. Raises UnknownName."""
    from replay.profiles.hardware import dtype_called, engine_called, gpu_called
    from replay.profiles.models import model_called

    wanted = {
        "gpu": None if gpu is None else gpu_called(gpu).name,
        "model": None if model is None else model_called(model).name,
        "tp": tp,
        "dtype": None if dtype is None else dtype_called(dtype),
        "engine": None if engine is None else engine_called(engine),
    }
    return lambda row: all(value is None or getattr(row, key) == value for key, value in wanted.items())


def records(rows: dict[str, Measured]) -> dict[str, dict[str, object]]:
    """Each row with what a person wants to know before choosing it."""
    from replay.profiles.named import named_profile

    found: dict[str, dict[str, object]] = {}
    for name, row in rows.items():
        profile = named_profile(name)
        found[name] = {
            "version": row.version,
            "num_blocks": profile.engine.num_blocks,
            "fit_error_percent": row.mape_percent,
            "source": profile.source,
            "error": profile.error,
            "weakness": profile.weakness,
        }
    return found


def listing(rows: dict[str, Measured]) -> str:
    """A line for each row: its name, how many tokens its KV pool holds, its fit error, and where it is weak."""
    from replay.profiles.named import BROAD, named_profile

    if not rows:
        return "none was measured; replay profiles show GPU/MODEL/tpN/DTYPE/ENGINE tells if one can be guessed"
    lines = [f"{'profile':50}{'engine':>10}{'KV tokens':>12}{'fit error':>11}  weak in whole runs"]
    for name, row in rows.items():
        engine = named_profile(name).engine
        weak = ", ".join(key for key in row.weaknesses if key not in BROAD)
        tokens = f"{engine.num_blocks * engine.block_size:,}"
        lines.append(f"{name:50}{row.version:>10}{tokens:>12}{row.mape_percent:>10.1f}%  {weak}".rstrip())
    return "\n".join(lines)


def profile_text(profile: Profile) -> str:
    """A profile for people: where it comes from, and every number in it."""
    import msgspec
    import yaml

    fields = msgspec.to_builtins(profile)
    head = {key: fields.pop(key) for key in ("name", "source", "error", "weakness")}
    text: str = yaml.safe_dump({**head, **fields}, sort_keys=False, width=110)
    return text.rstrip()
