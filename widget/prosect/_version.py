"""The version of prosect, stated once."""

__version__ = "0.1.0"
