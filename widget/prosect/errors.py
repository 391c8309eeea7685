"""What prosect raises: one sentence each, saying what to do."""


class ProsectError(ValueError):
    """Something cannot be dissected as asked; the message says what to do instead."""


class TextLengthError(ProsectError):
    """A text has no token of its own, or more tokens than the model has positions."""


class UnsupportedModelError(ProsectError):
    """The model's architecture has no anatomy, or the model lacks what was asked of it."""


class ReconstructionError(ProsectError):
    """Parts do not add up to what the model computed; the message names where they stop."""


class StaleTraceError(ProsectError):
    """A weight that an analysis needs was changed after the text was traced."""
