"""From a checkpoint's bytes to matrices: `source` holds them as stored, `reader` finds them,
`ggml_blocks` decodes GGUF blocks and `quantise` makes smaller ones."""
