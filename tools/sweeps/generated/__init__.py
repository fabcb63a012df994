"""Generated programs, class by class, run in eager and compiled, call by call (see harness.py and `make fuzz`)."""
