"""vLLM's scheduler interface without vLLM: the books are kept as vLLM 0.32 keeps them, the decisions are told to it."""

__version__ = "0.32.0+fake"
