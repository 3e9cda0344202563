"""Floor 4: the engine process. `loop` plans, runs, applies and sends; `runner` computes with torch.

What to compute is decided in `scheduling`, how a model computes it in `models`. The process knows
token ids only; text is the gateway's. Most modules here import no torch: `process` loads the
runner when its socket is open.
"""
