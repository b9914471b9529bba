"""Watch a small fleet being supervised."""
