"""The figures of a comparison, in the order of the report."""
