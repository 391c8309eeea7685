"""One forward pass, observed: hooks, the attention tap, and what a run leaves."""
