"""The statistics of a comparison: functions of the scores of methods, and of a table of runs."""
