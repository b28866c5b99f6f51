"""The files of a run: what is planned, what ended and how, and which record counts."""
