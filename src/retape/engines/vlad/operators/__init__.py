"""The table of operators: what each is in one row, and what is made of partials."""
