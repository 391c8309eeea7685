"""The exceptions of prosect. Each message is one sentence that says what to do."""


class ProsectError(ValueError):
    """A request that prosect cannot fulfil; the message says what to do instead."""


class TextLengthError(ProsectError):
    """A text without tokens, or with more tokens than the model has positions."""


class UnsupportedModelError(ProsectError):
    """A model of an unsupported architecture, or without the part that was requested."""


class ReconstructionError(ProsectError):
    """Parts whose sum differs from what the model computed; the message names the first step."""


class StaleTraceError(ProsectError):
    """A weight that an analysis needs has changed since the text was traced."""
