"""`python -m tidemark.cli`: the command where no script is installed."""

from tidemark.cli.main import main

if __name__ == "__main__":
    main()
