"""The sub-commands, grouped by what they look at."""
