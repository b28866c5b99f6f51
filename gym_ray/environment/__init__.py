"""Talks HTTP to environment servers: request bodies, connections, delivery evidence, retries."""
