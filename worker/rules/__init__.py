"""Rules without I/O and without a clock of their own. Nothing here imports another room."""
