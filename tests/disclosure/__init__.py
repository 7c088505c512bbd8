"""Tests of what exact numbers give away."""
