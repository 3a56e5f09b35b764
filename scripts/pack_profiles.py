"""Write replay/profiles/measured.json, the engine profiles that are shipped, from a file of fitted rows.

`python scripts/pack_profiles.py profiles.json`. Rows of the 2023 stack of the Splitwise paper are left out: they know
neither weights nor KV bytes. Where two versions of an engine were measured alike, the newest has the plain name.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from replay.files import write_whole
from replay.profiles.hardware import dtype_called, engine_called, gpu_called
from replay.profiles.models import model_called

OUTPUT = Path(__file__).parent.parent / "replay" / "profiles" / "measured.json"
KNOTS = [1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]

WEAKNESSES = {
    "sum": "kernels and collectives are measured, the whole step is their sum",
    "layers": "layers are measured on an engine of one layer, the whole step is their sum",
    "apart": "prefill and decode attention are taken to cost the same together as apart",
    "carried": "what prefill and decode attention cost together (mixed_kv_factor) is carried over from other GPUs",
    "guessed": "what prefill and decode attention cost together (mixed_kv_factor) is assumed",
    "TPOT 16% long": "time per output token of Llama-3.1-70B in fp8 came out 16% too long against 40 runs on B200",
    "TPOT 21% short": "all-reduce over PCIe: time per output token of Qwen3-32B on two GPUs came out 21% too short",
    "slow all-reduce": "all-reduce over PCIe is implausibly slow with 4 GPUs and more (70B is slower on 8 than on 4)",
    "no all-reduce": "the all-reduce between its GPUs is left out: steps come out too short",
    "to 2,304 tokens": "measured up to 2,304 tokens; beyond 2,048 the last slope goes on",
    "heads": "attention is that of 32 query heads, the model has {heads}",
    "34% off": "70B on H200 is 34% off in whole runs",
    "23% off": "32B is 23% off in whole runs",
}
"""What is known not to hold, by the few words that lists have room for."""
NOTES = {
    "TPOT 16% long": r"TPOT over-predicted by 16%",
    "TPOT 21% short": r"under-predicts TPOT by 21%",
    "slow all-reduce": r"implausibly slow TP>=4",
    "no all-reduce": r"all-reduce NOT included",
    "to 2,304 tokens": r"measured only for T<=2304",
    "heads": r"gen attn proxy q=32",
}
"""What the notes of a row say, by weakness."""


def weaknesses(row: dict[str, Any], packed: dict[str, Any]) -> Iterator[str]:
    """The weaknesses of a row, by key."""
    status = row["kv_mixed_factor_status"]
    yield "layers" if row["data_kind"].endswith("layers") else "sum"
    if status != "measured":
        carried = status.startswith("carried over")
        yield "carried" if carried else "guessed" if row["kv_mixed_factor"] != 1 else "apart"
    for key, pattern in NOTES.items():
        if re.search(pattern, row["note"]):
            yield key
    if packed["engine"] == "tensorrt-llm" and packed["model"].endswith("-70b"):
        yield "34% off"
    if packed["engine"] == "sglang" and packed["model"].endswith("-32b"):
        yield "23% off"


def source(row: dict[str, Any]) -> str:
    """Where a row comes from, with its licence."""
    place = row["source"]
    if place.startswith("aiconfigurator"):
        database, files = re.match(r"(aiconfigurator-core [\d.]+) perf DB \(Apache-2.0\) data/(\S+)", place).groups()  # type: ignore[union-attr]
        gpu, _, engine, version = files.split("/", 3)
        return (
            f"{database} performance database (Apache-2.0), composed from measured kernels: {gpu}, {engine} {version}"
        )
    directory = re.match(r"casys-kaist/LLMServingSim \(MIT\) (\S+)", place)
    if directory is None:
        raise SystemExit(f"pack_profiles: unknown source {place!r}")
    return f"LLMServingSim (MIT), layers timed in vLLM {row['engine'].split()[1]}: {directory[1]}"


def packed_row(row: dict[str, Any], sources: list[str]) -> dict[str, Any]:
    """One row as it is shipped."""
    knots = row["tokens_knots"]
    if knots != KNOTS[: len(knots)]:
        raise SystemExit(f"pack_profiles: unexpected knots {knots}")
    engine, version = row["engine"].split(" ", 1)
    place = source(row)
    if place not in sources:
        sources.append(place)
    packed: dict[str, Any] = {
        "gpu": gpu_called(row["gpu"]).name,
        "model": model_called(row["model"]).name,
        "tp": row["tp"],
        "dtype": dtype_called(row["dtype"]),
        "engine": engine_called(engine),
        "version": version,
        "knots_ms": row["tokens_ms"],
        "decode_ms": row["ms_per_decode_seq"],
        "kv_token_ms": row["ms_per_kv_token"],
        "mixed_kv_factor": row["kv_mixed_factor"],
        "prefill_attention_ms": row["ms_per_prefill_attn_work"],
        "prefill_context_ms": row.get("ms_per_prefill_ctx_token", 0.0),
        "kv_bytes_per_token": row["kv_bytes_per_token_per_gpu"],
        "weights_gib": row["weight_gib_per_gpu"],
        "mape_percent": row["fit_mape"],
        "p90_percent": row["fit_p90"],
        "source": sources.index(place),
    }
    packed["weaknesses"] = list(weaknesses(row, packed))
    return packed


def version_key(row: dict[str, Any]) -> list[int]:
    """A version as numbers that compare."""
    return [int(n) for n in re.findall(r"\d+", row["version"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", help="file of fitted rows")
    parser.add_argument("-o", "--output", default=str(OUTPUT))
    given = parser.parse_args()
    rows = json.loads(Path(given.profiles).read_bytes())["rows"]
    sources: list[str] = []
    packed = [packed_row(row, sources) for row in rows if "weight_gib_per_gpu" in row]
    packed.sort(key=lambda r: (r["gpu"], r["model"], r["tp"], r["dtype"], r["engine"], [-n for n in version_key(r)]))
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in packed)
    head = json.dumps({"knots_tokens": KNOTS, "sources": sources, "weaknesses": WEAKNESSES}, indent=1)[:-2]
    write_whole(given.output, f'{head},\n "rows": [\n{lines}\n]}}\n'.encode())
    print(f"{len(packed)} of {len(rows)} rows written to {given.output}")


if __name__ == "__main__":
    main()
