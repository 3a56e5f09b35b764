"""GPUs and number formats by the names that people give them."""

from __future__ import annotations

from msgspec import Struct

from replay.errors import UnknownName


class Gpu(Struct, frozen=True, kw_only=True):
    """A GPU. Bandwidth and compute are the vendor's data sheet: they scale step times between GPUs, and no more."""

    name: str
    aliases: tuple[str, ...] = ()
    architecture: str
    memory_gib: float
    """Total that CUDA reports, less than the nominal size."""
    bandwidth_gb_s: float
    bf16_tflops: float
    """Dense tensor cores, accumulating in 32 bits."""


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu(
            name="a100-sxm", aliases=("a100", "a100 80gb", "a100 sxm4 80gb"),
            architecture="ampere", memory_gib=79.2, bandwidth_gb_s=2039, bf16_tflops=312,
        ),
        Gpu(
            name="a100-sxm-40gb", aliases=("a100 40gb", "a100 sxm4 40gb", "a100 pcie 40gb"),
            architecture="ampere", memory_gib=39.4, bandwidth_gb_s=1555, bf16_tflops=312,
        ),
        Gpu(
            name="h100-sxm", aliases=("h100", "h100 80gb", "h100 80gb hbm3", "h100 sxm5", "h100 sxm5 80gb"),
            architecture="hopper", memory_gib=79.1, bandwidth_gb_s=3350, bf16_tflops=989,
        ),
        Gpu(
            name="h100-pcie", aliases=("h100 pcie 80gb",),
            architecture="hopper", memory_gib=79.1, bandwidth_gb_s=2000, bf16_tflops=756,
        ),
        Gpu(
            name="h200-sxm", aliases=("h200", "h200 141gb", "h200 sxm 141gb", "h200 sxm5 141gb"),
            architecture="hopper", memory_gib=139.8, bandwidth_gb_s=4800, bf16_tflops=989,
        ),
        Gpu(
            name="b200-sxm", aliases=("b200", "b200 180gb", "b200 sxm 180gb"),
            architecture="blackwell", memory_gib=178.35, bandwidth_gb_s=8000, bf16_tflops=2250,
        ),
        Gpu(
            name="l40s", aliases=("l40s 48gb",),
            architecture="ada", memory_gib=44.4, bandwidth_gb_s=864, bf16_tflops=362,
        ),
        Gpu(
            name="l4", aliases=("l4 24gb",),
            architecture="ada", memory_gib=22.0, bandwidth_gb_s=300, bf16_tflops=121,
        ),
        Gpu(
            name="rtx-pro-6000-server",
            aliases=("rtx pro 6000 blackwell server", "rtx pro 6000 blackwell server edition"),
            architecture="blackwell workstation", memory_gib=94.97, bandwidth_gb_s=1597, bf16_tflops=480,
        ),
        Gpu(
            name="rtx-pro-6000",
            aliases=("rtxpro6000", "rtx pro 6000 blackwell", "rtx pro 6000 blackwell workstation edition"),
            architecture="blackwell workstation", memory_gib=94.97, bandwidth_gb_s=1792, bf16_tflops=504,
        ),
        Gpu(
            name="rtx-4090", aliases=("rtx4090", "4090", "rtx4090 24gb", "geforce rtx 4090"),
            architecture="ada", memory_gib=23.52, bandwidth_gb_s=1008, bf16_tflops=165,
        ),
        Gpu(
            name="rtx-3090", aliases=("rtx3090", "3090", "rtx3090 24gb", "geforce rtx 3090"),
            architecture="ampere workstation", memory_gib=23.6, bandwidth_gb_s=936, bf16_tflops=71,
        ),
    )
}  # fmt: skip
"""Memory: totals in logs of PyTorch, which vary by 0.1 GiB between drivers; the H100's fits four logs of vLLM."""

DTYPES = {"bf16": ("bfloat16", "fp16", "float16", "half", "auto"), "fp8": ("float8", "fp8_e4m3", "fp8_block", "w8a8")}
"""Number format of weights, and what is taken as it: 16 bits cost the same in either format."""

ENGINES = {"vllm": (), "sglang": (), "tensorrt-llm": ("trtllm", "trt-llm", "tensorrt_llm")}


def plain(name: str) -> str:
    """A name without case, separators and the maker."""
    words = name.lower().replace("-", " ").replace("_", " ").split()
    return " ".join(word for word in words if word != "nvidia")


GPU_NAMES = {plain(alias): gpu.name for gpu in GPUS.values() for alias in (gpu.name, *gpu.aliases)}


def gpu_called(name: str) -> Gpu:
    """The GPU that people call `name`: "H100", "H100-SXM5-80GB", "NVIDIA H100 80GB HBM3". Raises UnknownName."""
    found = GPU_NAMES.get(plain(name))
    if found is None:
        raise UnknownName.of("GPU", name, GPUS)
    return GPUS[found]


def dtype_called(name: str) -> str:
    """bf16 or fp8. Raises UnknownName."""
    return called(name, DTYPES, "dtype")


def engine_called(name: str) -> str:
    """vllm, sglang or tensorrt-llm. Raises UnknownName."""
    return called(name, ENGINES, "engine")


def called(name: str, table: dict[str, tuple[str, ...]], kind: str) -> str:
    """The key of `table` that stands for `name`. Raises UnknownName."""
    wanted = name.lower()
    for key, aliases in table.items():
        if wanted == key or wanted in aliases:
            return key
    raise UnknownName.of(kind, name, table)
