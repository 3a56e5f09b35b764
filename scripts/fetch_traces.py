"""Download the public traces that `replay ingest` reads, by name, from where their authors keep them.

    python scripts/fetch_traces.py --list
    python scripts/fetch_traces.py mooncake-conversation azure-llm-2023-code -o traces

A file appears under its name when it is whole and its SHA-256 is the expected one; a download that was broken off goes
on where it stopped. Exit code 0 when all files are there, 1 when one is not, 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import http.client
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
TIMEOUT_S = 30.0
"""A server that is silent for so long has broken off."""
TRIES = 5
"""Connections in a row that bring nothing, after which a download is given up."""
CHUNK_BYTES = 1 << 20
PROGRESS_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Trace:
    """A file and where it is; `sha256` and `size_bytes` are None where nobody has published them."""

    name: str
    address: str
    sha256: str | None
    size_bytes: int | None
    license: str

    @property
    def file(self) -> str:
        return self.address.rsplit("/", 1)[1]


RAW = "https://raw.githubusercontent.com"
MOONCAKE = f"{RAW}/kvcache-ai/Mooncake/3cca71daccf2a7afb8fe3f0295358f70e3a69fdb/FAST25-release/traces"
MOONCAKE_ARXIV = f"{RAW}/kvcache-ai/Mooncake/d21da178bae8db9651cf18a76824c084145fc725"
AZURE_2023 = f"{RAW}/Azure/AzurePublicDataset/790921015d50dd6aae7f7e47f39ba0e235ad6b08/data"
AZURE_2024 = "https://github.com/Azure/AzurePublicDataset/releases/download/dataset-llm-2024"
AZURE_2025 = f"{RAW}/Azure/AzurePublicDataset/a77ce7bd32fdbe2c014876df736848f91548bafa/data"
BURSTGPT = "https://github.com/HPMLL/BurstGPT/releases/download/v2.0"
BAILIAN = "https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon/raw/0b4273a1d8a83935b9d9356e78f95c31f2ac64cf"
TRACELAB = "https://github.com/uw-syfi/TraceLab/releases/download/v2026-06-08-syfi-trace"
APACHE, CC_BY = "Apache-2.0", "CC-BY-4.0"

TRACES = (
    Trace("mooncake-conversation", f"{MOONCAKE}/conversation_trace.jsonl",
          "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df", 3_029_533, APACHE),
    Trace("mooncake-toolagent", f"{MOONCAKE}/toolagent_trace.jsonl",
          "48a2db1a13d3bc05e6330140c64f604ba366df20d3c9e128b5c35a01c1fa5f71", None, APACHE),
    Trace("mooncake-synthetic", f"{MOONCAKE}/synthetic_trace.jsonl",
          "bd070915a98fc0ed264d7cfef2ce746002eb3076a695ec31ba2674c0111ec131", None, APACHE),
    Trace("mooncake-arxiv", f"{MOONCAKE_ARXIV}/mooncake_trace.jsonl",
          "b434f1816a707f4bac697235588184ebc374c9907cb981bb65fb0643471fe711", None, APACHE),
    Trace("azure-llm-2023-code", f"{AZURE_2023}/AzureLLMInferenceTrace_code.csv",
          "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6", None, CC_BY),
    Trace("azure-llm-2023-conv", f"{AZURE_2023}/AzureLLMInferenceTrace_conv.csv",
          "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8", 719_188, CC_BY),
    Trace("azure-llm-2024-code", f"{AZURE_2024}/AzureLLMInferenceTrace_code_1week.csv",
          "71de5c55cbc35f8f1ed0b6b7806b4cd1e9764b0058469725a6aac98023a1448f", 691_989_454, CC_BY),
    Trace("azure-llm-2024-conv", f"{AZURE_2024}/AzureLLMInferenceTrace_conv_1week.csv",
          "a0cc9b969a9bbf0fd811802cbf4323edd3a209ace791e3799ad4f9207f213941", 1_135_195_393, CC_BY),
    Trace("azure-lmm-2025", f"{AZURE_2025}/AzureLMMInferenceTrace_multimodal.csv.gz", None, None, CC_BY),
    Trace("burstgpt-1", f"{BURSTGPT}/BurstGPT_1.csv",
          "4bb3783693d0a435686fbfc885615d2349bd067239079fa4b749f2e679e12122", 52_283_111, CC_BY),
    Trace("burstgpt-2", f"{BURSTGPT}/BurstGPT_2.csv",
          "44bf5942b03fca42c01a226a545ad3a750ec62688faecd67b6831c56a8928bf7", 144_819_209, CC_BY),
    Trace("burstgpt-3", f"{BURSTGPT}/BurstGPT_3.csv",
          "2299986a07388aa303ec2c41d1131e756db650a39ed6ef9dfe7cc3d7f9a43b8f", 231_682_327, CC_BY),
    Trace("qwen-bailian-coder", f"{BAILIAN}/qwen_coder_blksz_16.jsonl",
          "3d74974cebb7bccb69b1ca6ea210a44d9a3033443c0271ed015327284dea1aff", 132_054_902, APACHE),
    Trace("qwen-bailian-thinking", f"{BAILIAN}/qwen_thinking_blksz_16.jsonl",
          "41ac36d9d1b54d084eeb6b05e9d142ba9d02f8bf79cfc9fff418d8ab7cdee906", 27_901_454, APACHE),
    Trace("ragpulse", f"{RAW}/flashserve/RAGPulse/99a62769a91d5ebd17a2d4ddbbc88c1d16edc0e8/data/0_trace.jsonl",
          None, None, "MIT"),
    Trace("tracelab", f"{TRACELAB}/syfi_coding_trace.jsonl.gz",
          "9d265eae69a31cae203848bea936f018148eed7ca8bf56050c5abe96da0b4e6b", None, CC_BY),
)  # fmt: skip
"""Digests: of BurstGPT 1 and 2 and of Bailian's from the Git LFS pointers in their repositories, of TraceLab as its
authors give it, of Mooncake's conversation trace from a copy of the file; of the others as several people who
downloaded the files, independently of each other, give them."""


class FetchError(Exception):
    """A trace could not be had: says which, why, and what to do."""


class Broken(Exception):
    """A connection ended before the file did; another may bring the rest."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns its exit code."""
    parser = argparse.ArgumentParser(description="Download public traces by name, with their checksums.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a trace of --list, or all")
    parser.add_argument("-o", "--output", default="traces", metavar="DIR", help="where to put them (traces)")
    parser.add_argument("--list", action="store_true", help="list the traces")
    parser.add_argument("--base", metavar="URL", help="a mirror: takes the place of scheme and host of each address")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    given = parser.parse_args(arguments)
    if given.list:
        print("\n".join(map(listed, TRACES)))
        return OK
    if not given.names:
        return said("no name is given; see --list", USAGE)
    if given.base is not None and not given.base.startswith(("http://", "https://")):
        return said(f"--base {given.base}: must begin with http:// or https://", USAGE)
    try:
        chosen = [trace for name in given.names for trace in named(name)]
    except FetchError as error:
        return said(str(error), USAGE)
    code = OK
    for trace in dict.fromkeys(chosen):
        try:
            fetch(trace, Path(given.output), given.base, given.quiet)
        except FetchError as error:
            code = said(f"{trace.name}: {error}", FAILED)
        except KeyboardInterrupt:
            return said(f"{trace.name}: interrupted; the same command goes on from there", INTERRUPTED)
    return code


def said(message: str, code: int) -> int:
    print(f"fetch_traces: {message}", file=sys.stderr)
    return code


def listed(trace: Trace) -> str:
    """A trace in a line."""
    size = "size unknown" if trace.size_bytes is None else f"{trace.size_bytes / 1e6:,.1f} MB"
    digest = "unpinned" if trace.sha256 is None else f"sha256 {trace.sha256[:12]}..."
    return f"{trace.name:22} {size:>13}  {digest:22} {trace.license:11} {trace.address}"


def named(name: str) -> tuple[Trace, ...]:
    """The traces called `name`. Raises FetchError with the nearest names."""
    if name == "all":
        return TRACES
    found = tuple(trace for trace in TRACES if trace.name == name)
    if not found:
        names = [trace.name for trace in TRACES]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        raise FetchError(f"unknown trace {name!r}; " + (f"did you mean {' or '.join(near)}?" if near else "see --list"))
    return found


def fetch(trace: Trace, directory: Path, base: str | None, quiet: bool) -> None:
    """Have the file of a trace in `directory`, whole and checked. Raises FetchError."""
    path, part = directory / trace.file, directory / f"{trace.file}.part"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if path.exists():
            check_present(trace, path)
            tell(f"{trace.name}: {path} is there already", quiet)
            return
        download(trace, part, base, quiet)
        found = digest_of(part)
        if trace.sha256 is not None and found != trace.sha256:
            part.unlink()
            raise FetchError(f"the download is not the file: sha256 {found} instead of {trace.sha256}; it was removed")
        if trace.sha256 is None:
            beside(path).write_text(f"{found}  {path.name}\n")
            tell(f"{trace.name}: unpinned: nobody vouches for sha256 {found}; it is kept in {beside(path)}", quiet)
        os.replace(part, path)
    except OSError as error:
        raise FetchError(f"{error.filename or directory}: {error.strerror or error}") from error
    tell(f"{trace.name}: wrote {path}", quiet)


def tell(message: str, quiet: bool) -> None:
    if not quiet:
        print(message, file=sys.stderr)


def beside(path: Path) -> Path:
    """Where the digest of an unpinned file is kept, in the format of sha256sum."""
    return path.with_name(f"{path.name}.sha256")


def check_present(trace: Trace, path: Path) -> None:
    """Raises FetchError when a file that is there already is another."""
    expected = trace.sha256
    if expected is None and beside(path).exists():
        expected = beside(path).read_text().split(" ")[0]
    if expected is not None and digest_of(path) != expected:
        raise FetchError(f"{path} is there and is another file (its sha256 is not {expected}); move it away")


def digest_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(trace: Trace, part: Path, base: str | None, quiet: bool) -> None:
    """Bring `part` to its whole length, going on where it ends. Raises FetchError."""
    address = trace.address if base is None else base.rstrip("/") + urlsplit(trace.address).path
    tries = 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        if trace.size_bytes is not None and before == trace.size_bytes:
            return
        try:
            receive(trace, address, part, before, quiet)
            return
        except Broken as error:
            gained = part.exists() and part.stat().st_size > before
            tries = 0 if gained else tries + 1
            if tries >= TRIES:
                refuse(address, f"{error}; what has come is kept, and the same command goes on from there", error)
            tell(f"{trace.name}: {error}; going on from there", quiet)
            time.sleep(min(0.1 * 2**tries, 5.0))


def receive(trace: Trace, address: str, part: Path, start: int, quiet: bool) -> None:
    """Append to `part` what the server has from byte `start` on. Raises Broken when it stops short, and FetchError."""
    request = urllib.request.Request(address, headers={"User-Agent": "fetch_traces", "Accept-Encoding": "identity"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            if start and not (response.status == 206 and starts_at(response.headers.get("Content-Range"), start)):
                start = 0
            left = response.headers.get("Content-Length")
            total = start + int(left) if left is not None and left.isdigit() else None
            if None not in (total, trace.size_bytes) and total != trace.size_bytes:
                part.unlink(missing_ok=True)
                refuse(address, f"has {total:,} bytes instead of {trace.size_bytes:,}: it is another file")
            write(response, trace, part, start, total, quiet)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            part.unlink(missing_ok=True)
            raise Broken("nothing follows the part from before, which was removed") from error
        if error.code in (429, 500, 502, 503, 504):
            raise Broken(f"the server answers {error.code} {error.reason}") from error
        refuse(address, f"the server answers {error.code} {error.reason}", error)
    except urllib.error.URLError as error:
        refuse(address, f"cannot be reached: {error.reason}", error)
    except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
        raise Broken("the server does not answer") from error


def write(
    response: http.client.HTTPResponse, trace: Trace, part: Path, start: int, total: int | None, quiet: bool
) -> None:
    """The body of a response to the end of `part`, of which `start` bytes are there. Raises Broken."""
    size, shown = start, 0.0
    with open(part, "ab" if start else "wb") as file:
        try:
            while chunk := response.read1(CHUNK_BYTES):
                file.write(chunk)
                size += len(chunk)
                if not quiet and time.monotonic() - shown > PROGRESS_EVERY_S:
                    shown = time.monotonic()
                    progress(trace.name, size, total)
        except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
            raise Broken(f"the connection broke off after {size:,} bytes") from error
        file.flush()
        os.fsync(file.fileno())
    if not quiet:
        progress(trace.name, size, total, last=True)
    if total is not None and size < total:
        raise Broken(f"the connection ended after {size:,} of {total:,} bytes")


def progress(name: str, size: int, total: int | None, last: bool = False) -> None:
    """How far a download is, in a terminal's line that is written over; elsewhere only the last is shown."""
    share = "" if not total else f" of {total / 1e6:,.1f} MB, {size / total:.0%}"
    if sys.stderr.isatty():
        print(f"\r{name}: {size / 1e6:,.1f} MB{share}", end="\n" if last else "", file=sys.stderr, flush=True)
    elif last:
        print(f"{name}: {size / 1e6:,.1f} MB{share}", file=sys.stderr)


def starts_at(content_range: str | None, start: int) -> bool:
    """Whether an answer is the part that was asked for: `bytes 100-199/200`."""
    return (content_range or "").startswith(f"bytes {start}-")


def refuse(address: str, problem: str, cause: Exception | None = None) -> NoReturn:
    raise FetchError(f"{address}: {problem}") from cause


if __name__ == "__main__":
    sys.exit(main())
