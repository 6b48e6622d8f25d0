"""GPT-2 inference from any released-style checkpoint."""

__version__ = "0.1.0"
