"""The one place that holds the version of stdiod."""

VERSION = "0.1.0"
