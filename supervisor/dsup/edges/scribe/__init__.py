"""The scribe: one aide that alone writes the run directory and the console."""
