"""A scored text as one page of HTML that needs nothing else and runs no script."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from ..tokenizer import Tokenizer
from .output import literal
from .score_report import ScoreReport
from .surprisal import NOT_SCORED, STEPS, Piece, Stretch, stretches

# Letters (ink), and s0 to s4 for what they lie on, a step of surprisal each.
LIGHT = {
    "ink": "#1b1b1f",
    "pale": "#5b5e66",
    "line": "#d5d7dc",
    "s0": "#ffffff",
    "s1": "#fff2c2",
    "s2": "#ffdd85",
    "s3": "#ffb866",
    "s4": "#ff9273",
}
DARK = {
    "ink": "#f2f2f4",
    "pale": "#a6aab3",
    "line": "#3a3d45",
    "s0": "#16181c",
    "s1": "#3a3314",
    "s2": "#5c4410",
    "s3": "#84440f",
    "s4": "#9c2f24",
}

_STYLE = """
:root { color-scheme: light dark; %s }
@media (prefers-color-scheme: dark) {
  :root { %s }
}
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 46rem; padding: 2.5rem 1.25rem 14rem; background: var(--s0);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif }
h1 { font-size: 1.3rem; margin: 0 0 1rem; overflow-wrap: anywhere }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1.25rem; margin: 0;
  font-size: .9rem }
dt, dd small { color: var(--pale) }
dd { margin: 0; font-variant-numeric: tabular-nums }
dd small { margin-left: .5rem; font-size: inherit }
.legend { margin: 1.5rem 0; font-size: .9rem; color: var(--pale) }
.legend b { font-weight: normal; color: var(--ink); padding: .15rem .5rem; white-space: nowrap }
b { outline: 1px solid var(--line); outline-offset: -1px; border-radius: .2rem }
main { position: relative; border-top: 1px solid var(--line); padding-top: 1.5rem;
  font: 1.05rem/1.9 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 4 }
main span { border-radius: .2rem; padding: .15rem 0; cursor: default;
  -webkit-box-decoration-break: clone; box-decoration-break: clone }
main span:hover, main span:focus { outline: 2px solid currentColor; outline-offset: 1px }
main span:hover::after, main span:focus::after { content: attr(data-tip); position: absolute;
  left: 0; right: 0; z-index: 1; margin-top: 2.4rem; padding: .7rem .9rem; pointer-events: none;
  background: var(--ink); color: var(--s0); border-radius: .4rem; white-space: pre-wrap;
  font: .85rem/1.55 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace }
main:hover span:focus:not(:hover)::after { display: none }
i::before { content: "↵"; font-style: normal }
.s0 { background: var(--s0) } .s1 { background: var(--s1) } .s2 { background: var(--s2) }
.s3 { background: var(--s3) } .s4 { background: var(--s4) }
.u { color: var(--pale); text-decoration: underline dotted }
@media print { main span, .legend b { print-color-adjust: exact } }
"""


def page(report: ScoreReport, tokenizer: Tokenizer) -> bytes:
    """The page, in UTF-8: figures, a legend, and the text, whose tokens say more when pointed at.

    Its policy lets a browser fetch nothing and run nothing, whatever the text says.
    """
    return "".join(_parts(report, tokenizer)).encode("utf-8", "backslashreplace")


def _parts(report: ScoreReport, tokenizer: Tokenizer) -> Iterator[str]:
    title = escape(f"A text under {report.model}")
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield '<meta http-equiv="Content-Security-Policy" '
    yield "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{title}</title>\n<style>{_STYLE % (_colours(LIGHT), _colours(DARK))}</style>\n"
    yield f"</head>\n<body>\n<h1>{title}</h1>\n<dl>\n"
    for name, value, remark in report.rows():
        more = f" <small>{escape(remark)}</small>" if remark else ""
        yield f"<dt>{escape(name)}</dt><dd>{escape(value)}{more}</dd>\n"
    yield f'</dl>\n<p class="legend">Surprisal: {_legend()}. Point at a token, or go to it with '
    yield "the Tab key, for its figures and what was likeliest in its place.</p>\n<main>"
    for stretch in stretches(report.pieces):
        yield _span(stretch, tokenizer)
    yield "</main>\n</body>\n</html>\n"


def _colours(scheme: dict[str, str]) -> str:
    return "; ".join(f"--{name}: {colour}" for name, colour in scheme.items())


def _legend() -> str:
    named = [(f"s{step}", name) for step, name in enumerate(STEPS)] + [("u", NOT_SCORED)]
    return " ".join(f'<b class="{style}">{name}</b>' for style, name in named)


def _span(stretch: Stretch, tokenizer: Tokenizer) -> str:
    style = "u" if stretch.step is None else f"s{stretch.step}"
    tip = "\n".join(_tip(piece, tokenizer) for piece in stretch.pieces)
    tip = escape(tip).replace("\n", "&#10;")
    text = escape(stretch.text).replace("\n", "<i></i>\n")  # the mark is no text, so not copied
    return f'<span class="{style}" tabindex="0" data-tip="{tip}">{text}</span>'


def _tip(piece: Piece, tokenizer: Tokenizer) -> str:
    head = f"{literal(piece.data)}  token {piece.id}"
    if piece.score is None:
        return f"{head}: {NOT_SCORED}, as nothing is before it in its window"
    lines = [f"{head}: {piece.bits:.2f} bits, probability {_percent(piece.score.logprob)}"]
    lines += [
        f"{_percent(logprob):>10}  {_named(token, tokenizer)}" for token, logprob in piece.score.top
    ]
    return "\n".join(lines)


def _named(token: int, tokenizer: Tokenizer) -> str:
    """A token's text; padding, which a model may think likely, has none."""
    return literal(tokenizer.token_bytes(token)) if tokenizer.known(token) else f"token {token}"


def _percent(logprob: float) -> str:
    return f"{100 * math.exp(logprob):.3g} %"
