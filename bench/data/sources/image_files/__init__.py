"""Data sets of image files in folders: classes, domains, and a list of landmarks."""
