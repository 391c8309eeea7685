"""Pure functions on tensors: no model classes, no widgets. Each cites the equation it computes."""
