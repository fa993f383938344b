"""Colours of the page, light and dark: one place for style sheet and charts.

The series' colours keep apart for protanopes, deuteranopes and tritanopes, the first ones most, and have a contrast of
3:1 and more with the page; a test holds both. Symbols and dashes tell the series apart without colour. Sequential
scales are of even lightness steps (cividis).
"""

from __future__ import annotations

__all__ = ["PALETTES"]

_CIVIDIS = ["#00224e", "#2a3f6d", "#575c6d", "#7d7c78", "#a59c74", "#d2c060", "#fee838"]

PALETTES: dict[str, dict[str, str | list[str]]] = {
    "light": {
        "page": "#ffffff",
        "panel": "#f5f6f8",
        "text": "#1b1f24",
        "muted": "#565e68",
        "line": "#d3d8de",
        "accent": "#0b5cad",
        "good": "#17703a",
        "bad": "#b3261e",
        "note": "#7a5200",
        "series": ["#004d9a", "#e15f06", "#169a61", "#cb6ca8", "#703400", "#2194ff", "#422267", "#162442"],
        "scale": _CIVIDIS[::-1],
    },
    "dark": {
        "page": "#15181c",
        "panel": "#1d2126",
        "text": "#e4e7eb",
        "muted": "#9ba5b0",
        "line": "#3a424b",
        "accent": "#78b7ff",
        "good": "#55c98a",
        "bad": "#ff9084",
        "note": "#e6b450",
        "series": ["#00b7ff", "#cc6218", "#357350", "#ffccdf", "#ffab14", "#0e72ff", "#9c5c93", "#c2a3d1"],
        "scale": _CIVIDIS,
    },
}
