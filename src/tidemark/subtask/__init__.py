"""One life of an operator subtask: built, restored, opened, cut, closed."""
