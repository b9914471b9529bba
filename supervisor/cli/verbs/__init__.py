"""The verbs of `stdiod` by topic; a file is imported only when one of its verbs is typed."""
