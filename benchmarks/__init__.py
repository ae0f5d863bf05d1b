"""Measured speed of the package: each module prints its figures and fails below its target."""
