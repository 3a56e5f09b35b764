"""Models: their shapes, and the names that people give them."""

from __future__ import annotations

import re

from msgspec import Struct

from replay.errors import UnknownName


class Model(Struct, frozen=True):
    """A dense model with full attention, as its config.json describes it."""

    name: str
    billions: float
    """Parameters."""
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context: int
    """Longest sequence, in tokens."""
    alike: tuple[str, ...] = ()
    """Models of the same shape, whose steps last as long."""

    def kv_bytes_per_token(self, tp: int) -> int:
        """Bytes of a token's keys and values on each of `tp` GPUs, in 16 bits."""
        return 2 * self.layers * max(1, self.kv_heads // tp) * self.head_dim * 2


MODELS = {
    model.name: model
    for model in (
        Model("llama-2-7b", 6.74, 32, 32, 32, 128, 4_096),
        Model("llama-2-13b", 13.02, 40, 40, 40, 128, 4_096),
        Model("llama-2-70b", 68.98, 80, 64, 8, 128, 4_096),
        Model("codellama-34b", 33.74, 48, 64, 8, 128, 16_384),
        Model("llama-3.2-1b", 1.24, 16, 32, 8, 64, 131_072),
        Model("llama-3.2-3b", 3.21, 28, 24, 8, 128, 131_072),
        Model("llama-3.1-8b", 8.03, 32, 32, 8, 128, 131_072, ("llama-3-8b", "deepseek-r1-distill-llama-8b")),
        Model(
            "llama-3.1-70b", 70.55, 80, 64, 8, 128, 131_072,
            ("llama-3-70b", "llama-3.3-70b", "deepseek-r1-distill-llama-70b"),
        ),
        Model("llama-3.1-405b", 405.85, 126, 128, 8, 128, 131_072),
        Model("qwen2.5-1.5b", 1.54, 28, 12, 2, 128, 32_768, ("qwen2-1.5b", "deepseek-r1-distill-qwen-1.5b")),
        Model("qwen2.5-3b", 3.09, 36, 16, 2, 128, 32_768),
        Model("qwen2.5-7b", 7.62, 28, 28, 4, 128, 32_768, ("qwen2-7b", "deepseek-r1-distill-qwen-7b")),
        Model("qwen2.5-14b", 14.77, 48, 40, 8, 128, 32_768, ("deepseek-r1-distill-qwen-14b",)),
        Model("qwen2.5-32b", 32.76, 64, 40, 8, 128, 32_768, ("qwq-32b", "deepseek-r1-distill-qwen-32b")),
        Model("qwen2.5-72b", 72.71, 80, 64, 8, 128, 32_768, ("qwen2-72b",)),
        Model("qwen3-4b", 4.02, 36, 32, 8, 128, 40_960),
        Model("qwen3-8b", 8.19, 36, 32, 8, 128, 40_960),
        Model("qwen3-14b", 14.77, 40, 40, 8, 128, 40_960),
        Model("qwen3-32b", 32.76, 64, 64, 8, 128, 40_960),
        Model("mistral-7b", 7.25, 32, 32, 8, 128, 32_768),
        Model("mistral-nemo", 12.25, 40, 32, 8, 128, 131_072),
        Model("mistral-small-24b", 23.57, 40, 32, 8, 128, 32_768),
        Model("phi-4", 14.66, 40, 40, 10, 128, 16_384),
    )
}  # fmt: skip
"""Shapes: the config.json of each model on Hugging Face."""

TUNING = re.compile(r"-(hf|chat|instruct|base|it|fp8|fp8-dynamic|bf16|awq|gptq|\d{4}|v0\.\d)(?=-|$)")
"""Parts of a name that say how a model was tuned or packed, not what it is."""
MODEL_NAMES = {name: model.name for model in MODELS.values() for name in (model.name, *model.alike)}


def model_slug(name: str) -> str:
    """A model's name in profiles: "meta-llama/Llama-3.1-8B-Instruct" is "llama-3.1-8b"."""
    bare = name.rsplit("/", 1)[-1].lower().removeprefix("meta-")
    bare = TUNING.sub("", bare)
    return MODEL_NAMES.get(bare, bare)


def model_called(name: str) -> Model:
    """The model that people call `name`, by its name here or on Hugging Face. Raises UnknownName."""
    slug = model_slug(name)
    if slug not in MODELS:
        raise UnknownName.of("model", name, MODELS)
    return MODELS[slug]
