"""Copies of a network that differ in a few tensors and share all the others."""

import copy
from typing import TypeVar

from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def shared_copy(module: Module) -> Module:
    """A module, and new ones for all within it, whose tensors and settings are those of `module`.

    What is then put on the copy is not put on the original.
    """
    twin = copy.copy(module)
    inner = {n: None if m is None else shared_copy(m) for n, m in module._modules.items()}
    twin.__dict__ |= {"_parameters": dict(module._parameters), "_modules": inner}
    return twin


def put(module: nn.Module, name: str, tensor: Tensor) -> None:
    """Make `tensor` the parameter of a dotted name under `module`."""
    owner, _, last = name.rpartition(".")
    setattr(module.get_submodule(owner), last, nn.Parameter(tensor, requires_grad=False))
