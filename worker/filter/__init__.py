"""Redis saves work: it remembers completed entries, and is never asked whether something was not done."""
