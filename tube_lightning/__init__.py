"""Bracket the likelihood of masked-diffusion and any-order language models."""
