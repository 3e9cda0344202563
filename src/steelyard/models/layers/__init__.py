"""What decoder models are made of: attention, gated MLP, rotary tables, and the decoder itself."""
