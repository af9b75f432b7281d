"""Tools for people who train layers: loops, marked functions, policies, a planner."""
