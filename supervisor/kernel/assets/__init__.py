"""Assets: files that modules hand over, looked at, registered, copied and read again."""
