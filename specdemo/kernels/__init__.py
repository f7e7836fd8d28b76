"""The compiled pass: Llama layers and their draft as machine code. `runtime` is the one door."""
