"""A published table reproduced at its own scale: its kept runs, and the page docs/reproduction.md."""
