"""Where elements come from and go to.  Imports nothing above the algebra."""
