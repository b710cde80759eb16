"""Continuous execution: tasks that last as long as the attempt, and barriers that flow with the records."""
