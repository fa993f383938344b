"""Presentation: HTML for notebooks, colours. Nothing here knows a store."""
