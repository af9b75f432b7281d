"""Other projects' own tests, run with Retape's functions in the place of theirs."""
