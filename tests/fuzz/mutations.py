"""Ways to damage a file: bytes at and between its marks, and values of a JSON text."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

# Numbers at which sizes, counts and places go wrong, in every width that a format has.
EDGES = (0, 1, 127, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**60, 2**63, 2**64 - 1)
WORDS = tuple(
    number.to_bytes(width, order)
    for number in EDGES
    for width in (1, 2, 4, 8)
    for order in ("little", "big")
    if number < 256**width
)

# What a value of a JSON text becomes, as it stands there.
VALUES = (
    *("null", "true", "false", "0", "-1", "1.5", "1e999", "-0.0", "NaN", "-Infinity"),
    *(str(edge) for edge in EDGES),
    *("7" * 4300, "7" * 4301, "1" + "0" * 400),
    *('""', '"\\ud800"', '"a\\u0000\\n\\u001b[2J"', '"../../x"', '"/dev/full"', '"Ġ"'),
    *("[]", "{}", "[[]]", '[null, "a"]', '{"a": 1, "a": 2}', "[" * 900 + "]" * 900),
    *("[" * 40 + "]" * 40, "[" * 99_999, '"' + "x" * 9000 + '"', "[1, 2, 3, 4, 5, 6, 7, 8, 9, 0]"),
)


def damaged(sound: bytes, marks: Sequence[int]) -> st.SearchStrategy[bytes]:
    """`sound` after one to four edits, most of them at a mark or just beside it."""
    return st.lists(_edit(len(sound), marks), min_size=1, max_size=4).map(
        lambda edits: _edited(sound, edits)
    )


Edit = tuple[str, int, Any]


def _edit(size: int, marks: Sequence[int]) -> st.SearchStrategy[Edit]:
    anywhere = st.integers(0, max(0, size - 1))
    place = anywhere
    if marks:
        beside = st.tuples(st.sampled_from(marks), st.integers(-2, 12)).map(sum)
        place = st.one_of(beside, beside, anywhere)
    return st.one_of(
        st.tuples(st.just("flip"), place, st.integers(1, 255)),
        st.tuples(st.just("write"), place, st.sampled_from(WORDS)),
        st.tuples(st.just("insert"), place, st.binary(max_size=9)),
        st.tuples(st.just("delete"), place, st.integers(1, 64)),
        st.tuples(st.just("copy"), place, anywhere),
        st.tuples(st.just("cut"), place, st.none()),
    )


def _edited(sound: bytes, edits: Sequence[Edit]) -> bytes:
    data = bytearray(sound)
    for kind, place, what in edits:
        place = min(max(place, 0), len(data))
        if kind == "flip" and place < len(data):
            data[place] ^= what
        elif kind == "write":
            data[place : place + len(what)] = what
        elif kind == "insert":
            data[place:place] = what
        elif kind == "delete":
            del data[place : place + what]
        elif kind == "copy":
            data[place : place + 48] = data[what : what + 48]
        elif kind == "cut":
            del data[place:]
    return bytes(data)


def damaged_json(sound: bytes) -> st.SearchStrategy[bytes]:
    """The JSON text `sound` with up to three values exchanged, names doubled, or entries gone."""
    value = json.loads(sound)
    paths = [*_paths(value)]
    change = st.tuples(st.sampled_from(paths), st.sampled_from(("", "double", *VALUES)))
    return st.lists(change, min_size=1, max_size=3).map(lambda changes: _changed(value, changes))


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of a JSON text are; of a long list or table the first and last few."""
    yield path
    keys = (
        list(value) if isinstance(value, dict) else [*range(len(value))] if _is_list(value) else []
    )
    for key in keys if len(keys) < 40 else keys[:20] + keys[-20:]:
        yield from _paths(value[key], (*path, key))


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _changed(sound: Any, changes: Sequence[tuple[tuple[Any, ...], str]]) -> bytes:
    value = json.loads(json.dumps(sound))
    texts = {}
    for number, (path, what) in enumerate(changes):
        mark = f"@{number}@"
        texts[mark] = what
        try:
            value = _put(value, path, what, mark)
        except (LookupError, TypeError):  # an earlier change took that value away
            continue
    text = json.dumps(value)
    for mark, what in texts.items():
        text = text.replace(json.dumps(mark), what)
    return text.encode()


def _put(value: Any, path: tuple[Any, ...], what: str, mark: str) -> Any:
    if not path:
        return value if what in ("", "double") else mark
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    key = path[-1]
    if what == "":
        del holder[key]
    elif what == "double" and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif what == "double":
        holder[f"{key} "] = holder[key]
    else:
        holder[key] = mark
    return value
