"""The `tidemark` command: parse, call one library function, render. No decisions of its own."""
