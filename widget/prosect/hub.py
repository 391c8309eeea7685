"""Whether the model hub answers, asked once: its own client retries for half a minute."""

from __future__ import annotations

from huggingface_hub import constants
from huggingface_hub.utils import get_session

SECONDS = 3.0
"""How long the hub may take to accept a connection."""


def hub_answers() -> bool:
    """Whether a connection to the hub can be made; a slow answer is one.

    In offline mode it is not tried.
    """
    if constants.is_offline_mode():
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=SECONDS)
    except Exception as error:  # the hub's client has changed its library, and so its errors
        name = type(error).__name__
        return "Timeout" in name and "Connect" not in name
    return True
