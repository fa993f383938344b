"""Fragments of HTML for notebooks: whatever texts are in them, they are their own elements and these texts alone."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from nandarray.present import html


class Elements(HTMLParser):
    """Counts of elements, and what text stands in them; each that is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.counts, self.open, self.texts = Counter[str](), list[str](), list[str]()
        self.feed(text)
        assert not self.open, text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] += 1
        assert not [name for name, _ in attrs if name.startswith("on")]
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


WORDS = st.sampled_from(["<b>", "&amp;", '"', "'", "</table>", "plain", "<script>x</script>", "\u202e", "1 < 2"])


@given(st.lists(st.tuples(WORDS, WORDS, WORDS), max_size=4), st.booleans(), st.booleans())
def test_cells_of_a_table_are_texts(rows: list[tuple[str, ...]], head: bool, opened: bool) -> None:
    made = html.folded("<i>", html.table(rows, ("a", "<b>", "c") if head else None), opened=opened)
    found = Elements(made + html.sentences(text for row in rows for text in row))
    assert found.counts["tr"] == len(rows) + head
    assert found.counts["td"] == 2 * len(rows)
    assert found.counts["li"] == 3 * len(rows)
    assert set(found.counts) <= {"table", "tr", "td", "th", "details", "summary", "ul", "li"}
    wanted = ["<i>", *(["a", "<b>", "c"] if head else []), *(text for row in rows for text in row)]
    assert "".join(found.texts) == "".join(wanted + [text for row in rows for text in row])
    assert Elements(html.table([(html.Markup("<b>x</b>"), "y")])).counts["b"] == 1


@given(st.lists(st.integers(0, 10**30) | st.integers(1, 40), max_size=5), st.data())
def test_a_drawing_of_blocks_has_a_line_for_each_edge_within(shape: list[int], data: st.DataObject) -> None:
    block = [data.draw(st.integers(1, max(1, min(n, 50)))) for n in shape]
    drawn = html.blocks(shape, block)
    if not shape or 0 in shape:
        assert drawn == ""
        return
    found = Elements(drawn)
    sides = list(zip((1, *shape)[-2:], (1, *block)[-2:], strict=True))
    counts = [-(-n // b) for n, b in sides]
    edges = [count - 1 if count <= 16 else 15 for count in counts]  # more would be a grey area
    assert found.counts["path"] == sum(edges)
    assert found.counts["rect"] == 1 + min(3, max(0, len(shape) - 2))
    width, height = map(float, re.findall(r'<svg width="(\d+)" height="(\d+)"', drawn)[0])
    begins = [(float(x), float(y)) for x, y in re.findall(r"M([\d.]+) ([\d.]+)", drawn)]
    assert all(0 < x < width and 0 < y < height for x, y in begins)
