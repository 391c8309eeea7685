"""Pure functions on tensors. They import no other part of prosect and touch no module of a model."""
