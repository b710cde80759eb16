"""What the server can do, by subject: each module lists its routes."""
