"""Claims of papers as data, and whether printed numbers and runs confirm them."""
