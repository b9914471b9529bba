"""The version of stdiod, in this place only."""

VERSION = "0.1.0"
