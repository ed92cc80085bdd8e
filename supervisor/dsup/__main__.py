"""``python -m dsup``."""

from dsup.cli.entry import main

main()
