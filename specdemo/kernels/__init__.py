"""The compiled pass: the layers of a model and the draft after them as machine code. `runtime` runs it."""
