"""Figures of an interval, from two answers to `status`, as text or on a screen."""
