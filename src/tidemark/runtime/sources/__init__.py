"""Where records come from: driver-side positions and task-side readers of every kind of source."""
