"""What travels between driver, tasks and slots, as typed data."""
