"""The scheduler against a model whose KV memory is simulated block by block."""
