"""Types of the values that flow through streams and states: declarations, rows, times."""
