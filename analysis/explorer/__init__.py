"""The interactive page: one HTML file that shows runs as a leaderboard and as charts, without a network or a server."""
