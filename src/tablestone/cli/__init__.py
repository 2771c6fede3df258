"""The command line: commands, options, the sources of options, and messages to the person at the terminal."""
