"""Run an analysis over many texts: in shards, with checkpoints, in one process or in many."""
