"""Sections of an experiment's file: a method's entry, the scale, tuning."""
