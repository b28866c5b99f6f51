"""The command line: one file for each verb, which parses, calls the api, prints and chooses the exit code."""
