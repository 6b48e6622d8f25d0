"""Checkpoint → GPT2 on a device, in float32."""

import torch
from torch import Tensor

from .checkpoint import Checkpoint
from .errors import GPT2Error
from .model import GPT2


def load(checkpoint: Checkpoint, device: torch.device | str = "cpu") -> GPT2:
    """The network of a checkpoint, ready to run.

    Weights stored in float32 on aligned memory stay mapped from the file on a CPU; half types are
    widened. Raises GPT2Error when a weight is NaN or infinite, when a stored head of a tied model
    differs from wte, or when the file turns out to be damaged.
    """
    with torch.device("meta"):
        model = GPT2(checkpoint.config)
    state = {name: _read(checkpoint, name).to(device) for name in checkpoint.matched.tensors}
    checkpoint.check_copies()
    model.load_state_dict(state, strict=True, assign=True)
    return model.requires_grad_(False).eval()


def pick_device(name: str) -> torch.device:
    """The device called `name`: ``auto`` is cuda, then mps, then cpu, the first that is there.

    Raises GPT2Error for one that this machine lacks.
    """
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(kind for kind, there in available.items() if there)
    if not available[name]:
        raise GPT2Error(f"this machine has no {name} device that torch can use; try --device cpu")
    return torch.device(name)


def _read(checkpoint: Checkpoint, name: str) -> Tensor:
    tensor = checkpoint.read(name).to(torch.float32)
    low, high = torch.aminmax(tensor)
    if not (torch.isfinite(low) and torch.isfinite(high)):
        stored = checkpoint.matched.tensors[name]
        raise GPT2Error(f"{stored.file}: {stored.name} holds NaN or infinity; the file is damaged")
    return tensor
