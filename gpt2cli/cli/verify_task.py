"""One model to verify: what is fetched, loaded and compared for it, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..checkpoint.single_file import check_writable
from ..hub import CONFIG, GENERATION_CONFIG, fetch
from ..naming import parse_model
from ..tokenizer.saving import NAMES
from .download import bars
from .opening import network, open_weights
from .options import note

if TYPE_CHECKING:
    from ..checkpoint import Checkpoint
    from ..model import GPT2
    from ..verification.comparison import Kind, Report, Tolerance
    from ..verification.debug_state import DebugState
    from ..verification.reference import Reference


@dataclass(frozen=True)
class Task:
    """One model to verify, what it is compared with, and how networks are loaded."""

    name: str
    tolerance: Tolerance
    reference: Path | None
    against: str | None
    record: Path | None
    parts: bool
    device: str
    dtype: str
    threads: int | None
    quiet: bool

    @cached_property
    def hashed(self) -> tuple[str, ...]:
        """The files of a model of the Hub that have the hashes which the cache keeps of them."""
        model = parse_model(self.name)
        if model.repository is None:
            return ()
        from ..cache import check_hashes

        folder = fetch(model, tokenizer=False, progress=not self.quiet)
        names = check_hashes(model.repository, folder, bars(self.quiet))
        if not names:
            note(
                "the Hub's cache keeps no hashes where it cannot make links; "
                f"`gpt2 download {self.name}` asks the Hub for them",
                self.quiet,
            )
        return names

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The model's checkpoint, fetched and held to its hashes when it is first asked for."""
        _ = self.hashed
        return open_weights(self.name, quiet=self.quiet)

    @cached_property
    def network(self) -> GPT2:
        """The model as `generate` runs it."""
        return network(self.checkpoint, self.device, self.threads, self.dtype)

    @cached_property
    def unpacked(self) -> GPT2:
        """The model in float32 under the released names."""
        return network(self.checkpoint, self.device, self.threads, packed=False)

    def run(self) -> Report:
        """Refuse what can be before anything is fetched, then verify, and record if asked to."""
        from ..verification import against, live

        if self.record is not None:
            check_writable(self.record, self.reference)
        if self.against == live.NAME:
            live.require_transformers()
        file = None if self.reference is None else _read(self.reference)
        if self.record is not None:
            check_writable(self.record, *self._files())
        released = parse_model(self.name).preset is not None
        expected = self._expected(file)
        if expected is not None:
            kind: Kind = "reference" if self.against is None else "against"
            report = against.check_reference(
                self.network, self.name, expected, self.tolerance, lambda: self.unpacked, kind
            )
        else:
            report = self._published() if released else self._self()
        self._write(report, expected)
        return self._with_hashes(report)

    def _files(self) -> Iterator[Path]:
        """What the checkpoint is read from."""
        yield from {tensor.file for tensor in self.checkpoint.matched.tensors.values()}
        for name in (CONFIG, GENERATION_CONFIG, *NAMES):
            yield self.checkpoint.folder / name

    def _with_hashes(self, report: Report) -> Report:
        """The report with a check for each file whose hash was held to the Hub's."""
        from ..verification.comparison import Check

        files = tuple(Check("hub_hash", name, True, None, "exact") for name in self.hashed)
        return replace(report, checks=files + report.checks) if report.checks else report

    def _expected(self, file: Reference | DebugState | None) -> Reference | None:
        """What the logits are compared with, live or from a file."""
        from ..verification import debug_state, divergence, live, paths

        if isinstance(file, debug_state.DebugState):
            return file.reference(self.checkpoint.config)
        if self.against is None:
            return file
        if self.against == live.NAME:
            return live.record_transformers(self.unpacked, paths.sample_ids(self.unpacked))
        checkpoint = open_weights(self.against, quiet=self.quiet)
        other = network(checkpoint, self.device, self.threads, packed=False)
        ids = paths.sample_ids(self.network, other)
        return divergence.record(other, ids, f"{self.against} in float32", parts=True)

    def _published(self) -> Report:
        from ..tokenizer import load_tokenizer
        from ..verification import published, release

        facts = published.read_facts(published.figures_file(self.name.partition("@")[0]))
        facts += published.read_facts(published.figures_file(published.TOKENIZER))
        subject = release.Release(
            self.checkpoint, load_tokenizer(None, None), lambda: self.network, lambda: self.unpacked
        )
        return release.check_release(subject, self.name, facts, self.dtype)

    def _self(self) -> Report:
        from ..verification import comparison, paths

        same = self.tolerance if self.dtype == "float32" else comparison.Tolerance()
        return paths.check_paths(self.network, self.name, self.tolerance, same, self.unpacked)

    def _write(self, report: Report, expected: Reference | None) -> None:
        """Write a recording of the same ids, if they can be run, when one was asked for."""
        from ..verification import divergence, paths

        if self.record is None or not report.comparison.positions:
            return
        ids = paths.sample_ids(self.network) if expected is None else expected.input_ids
        source = f"gpt2cli {__version__}: {self.name}"
        ids = ids.to(self.network.wte.weight.device)
        divergence.record(self.network, ids, source, self.parts).write(self.record)


def _read(file: Path) -> Reference | DebugState:
    from ..verification.debug_state import DebugState
    from ..verification.reference import Reference

    return DebugState.read(file) if DebugState.claims(file) else Reference.read(file)
