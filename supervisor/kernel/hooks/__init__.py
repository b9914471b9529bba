"""Hooks: modules that are told what happens, and modules that say what may."""
