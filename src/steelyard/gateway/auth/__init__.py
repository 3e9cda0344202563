"""Who asks: callers are recognised by API keys or by tokens of an identity provider.

`building` makes a `Guard` from settings, the guard answers for every request, and `gateway.caller`
says what came of it. How much a caller may use is the business of `gateway.limits`.
"""
