"""`python -m steelyard.cli`: the same as the `steelyard` command."""

from steelyard.cli.main import main

main()
