"""From a plan and a program to settings that keep a budget."""
