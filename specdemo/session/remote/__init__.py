"""Engines in other processes and on other machines: what runs there, and the door that talks to them."""
