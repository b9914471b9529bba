"""Hooks: modules that are told what happens (observers), and modules that decide (gates)."""
