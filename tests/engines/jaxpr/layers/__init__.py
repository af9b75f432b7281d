"""Tests of the layer tools."""
