"""The numbers that the papers print, and what their text says."""
