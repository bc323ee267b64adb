"""Tuning: each method gets the same number of trials, which are scored on images that clients hold out."""
