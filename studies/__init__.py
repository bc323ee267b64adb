"""What only maintainers run, from a clone: pages of the project's own docs, searches, simulations and audits."""
