"""The analyses of a run: result classes, and the functions that compute them with the engines."""
