"""Figures: a YAML layout names its `kind`, and the class of that kind draws tidy data with matplotlib."""
