"""Cost models: what a graph needs whatever the schedule, and what a tile program needs on a device."""
