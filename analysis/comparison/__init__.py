"""Comparing a method with stored baselines."""
