"""The self-contained page: one HTML file that holds a view, its numbers and the front end."""

from prosect.page.write import write

__all__ = ["write"]
