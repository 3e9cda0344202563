"""What Redis runs: `policies.budgets` in Lua, each call atomic.

Levels are whole ticks, below 2**53 and so exact as Lua's floats. A key that has expired is a
budget that is full, so keys live for as long as refilling takes. The clock is the server's, one
for all; a test hands in its own.

    KEYS  1 hash: at, r, t (microseconds, ticks, ticks)   2 sorted set: lease → expiry
    ARGV  1 now (0: the server's)  2 requests/min  3 tokens/min  (0: unlimited)  4 … of the call
"""

__all__ = ["CLOSE", "OPEN", "RESERVE"]

_COMMON = """
local UNIT, FULL = 60000000, 6e15
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local rpm, tpm = tonumber(ARGV[2]), tonumber(ARGV[3])
local kept = redis.call('HMGET', KEYS[1], 'at', 'r', 't')
local at = tonumber(kept[1]) or now
local elapsed = math.max(now - at, 0)
local function refilled(level, limit)
  if limit == 0 then return FULL end
  local full = limit * UNIT
  local gain = elapsed * limit
  if gain >= full - level then return full end
  return level + gain
end
local requests = refilled(tonumber(kept[2]) or FULL, rpm)
local tokens = refilled(tonumber(kept[3]) or FULL, tpm)
local function keep()
  redis.call('HSET', KEYS[1], 'at', string.format('%.0f', math.max(at, now)),
    'r', string.format('%.0f', requests), 't', string.format('%.0f', tokens))
  local full_us = 0
  if rpm > 0 then full_us = (rpm * UNIT - requests) / rpm end
  if tpm > 0 then full_us = math.max(full_us, (tpm * UNIT - tokens) / tpm) end
  redis.call('PEXPIRE', KEYS[1], math.ceil(full_us / 1000) + 1000)
end
local function verdict(refused, wait)
  return {refused, math.ceil(wait), string.format('%.0f', requests),
    string.format('%.0f', tokens)}
end
"""

OPEN = (
    _COMMON
    + """
local places, lease, lease_us = tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[6])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now))
if places > 0 and redis.call('ZCARD', KEYS[2]) >= places then
  return verdict('concurrency', 1000000)
end
if rpm > 0 then
  if requests < UNIT then return verdict('requests', (UNIT - requests) / rpm) end
  requests = requests - UNIT
end
keep()
if places > 0 then
  redis.call('ZADD', KEYS[2], string.format('%.0f', now + lease_us), lease)
  redis.call('PEXPIRE', KEYS[2], math.ceil(lease_us / 1000))
end
return verdict('', 0)
"""
)
"""4 places (0: unlimited)  5 lease  6 its life in microseconds."""

RESERVE = (
    _COMMON
    + """
local wanted = tonumber(ARGV[4])
if tpm > 0 then
  local missing = wanted * UNIT - tokens
  if missing > 0 then return verdict('tokens', missing / tpm) end
  tokens = tokens - wanted * UNIT
end
keep()
return verdict('', 0)
"""
)
"""4 tokens."""

CLOSE = (
    _COMMON
    + """
redis.call('ZREM', KEYS[2], ARGV[4])
if tpm > 0 then
  tokens = math.min(tokens + tonumber(ARGV[5]) * UNIT, tpm * UNIT)
end
keep()
return verdict('', 0)
"""
)
"""4 lease  5 tokens to give back; negative when more was used than reserved."""
