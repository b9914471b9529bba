"""A service elsewhere: reached over HTTP, asked, and watched."""
