"""The laboratory: measures servers, judges measurements, and checks its own instruments.

`load` says what to ask and when, `client` asks and stamps the time, `records` keeps what happened,
`stats` turns it into numbers, `audit` decides whether the numbers may be believed. Knows servers by
their URL alone: no engine, no gateway, no torch.
"""
