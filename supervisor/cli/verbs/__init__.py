"""One file per verb of `stdiod`; each is imported only when its verb is typed."""
