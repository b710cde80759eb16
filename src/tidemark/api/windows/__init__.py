"""Windows: what they are, how elements get into them, and when they fire."""
