"""Data sets, and how they are split over clients."""
