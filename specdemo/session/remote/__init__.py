"""Engines in other processes and on other machines, and the client that calls them."""
