"""Results, each beside the engine calls that make it."""
