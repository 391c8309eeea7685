"""Figures for notebooks, made with bqplot."""

from prosect.figures.importance import importance

__all__ = ["importance"]
