"""The papers' published numbers and their audit."""
