"""State by column: what the backends share of it."""
