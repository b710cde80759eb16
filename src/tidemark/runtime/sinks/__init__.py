"""Where records go: task-side writers and driver-side commits of every kind of sink."""
