"""Rendering an experiment's tables, figures and page."""
