"""The derivative of the model itself: what a change of one hidden state does to the later ones.

By forward-mode differentiation of the model's own modules; no weight, record or formula of the
engines takes part, so that theirs can be held against it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.functional import jvp

from prosect.anatomy.vocabulary import Anatomy
from prosect.capture.replay import replay
from prosect.capture.run import Run
from prosect.capture.weights import lift
from prosect.modes import plain_arithmetic


@plain_arithmetic()
def derivative(
    anatomy: Anatomy, run: Run, start: int, directions: Float[Tensor, "direction token d"]
) -> Float[Tensor, "direction layer token d"]:
    """∂ hidden[l] / ∂ hidden[start] along each direction, for every l > start.

    All directions go through the model in one run, in the precision of the model.

    Parameters
    ----------
    anatomy
        What was run.
    run
        The run.
    start
        The hidden state that is changed.
    directions
        Its changes.

    Raises
    ------
    StaleTraceError
        If the model is no longer what it was in the run.
    """
    copies = len(directions)
    x = run.hidden[start].repeat(copies, 1, 1)

    def later(x: Tensor) -> tuple[Tensor, ...]:
        """The hidden states after ``start``, if x is that one."""
        found = replay(
            anatomy, run, lambda layer, own: x.to(own) if layer == start else None, copies
        )
        return (*found.entered[start + 1 :], found.last)

    try:
        with forward_ad.dual_level():
            duals = [forward_ad.unpack_dual(y) for y in later(forward_ad.make_dual(x, directions))]
            moved = [torch.zeros_like(y) if dy is None else dy for y, dy in duals]
    except NotImplementedError:
        # a function with a hand-written backward (BLOOM's GELU) has no forward mode: backward twice
        with torch.enable_grad():
            _, moved = jvp(later, x, directions)
    return lift(torch.stack(list(moved), dim=1))
