"""Sections of an experiment: evaluation, training, a method's entry, the scale, tuning."""
