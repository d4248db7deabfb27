"""Ways to look for a plan, from the simplest to the best, side by side."""
