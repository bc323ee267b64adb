"""The papers' published numbers, their audit, and verdicts on reproduced ones."""
