"""The tabs: each makes its components and wires their events. No tab imports another."""
